"""What tests of several folders share."""

from collections.abc import Iterator

import pytest

from ray_multicluster_scheduler.local import Head, HeadSpec, Sandbox


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Two real clusters for all tests that need several. Who breaks one starts it again."""
    heads = [HeadSpec(name="centos", cpus=4), HeadSpec(name="mac", cpus=2)]
    with Sandbox(tmp_path_factory.mktemp("sandbox"), heads) as running:
        yield running


@pytest.fixture(scope="session")
def real_head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    """One real Ray head for all tests that only need some cluster: they must not break it."""
    with Sandbox(tmp_path_factory.mktemp("real-head"), [HeadSpec(name="real", cpus=2)]) as sandbox:
        yield sandbox.heads["real"]
