"""What tests of several folders share."""

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests.support.postgres import PostgresServer, a_postgres

from ray_multicluster_scheduler.background import ControlFiles, ask_to_end
from ray_multicluster_scheduler.client import current
from ray_multicluster_scheduler.local import Head, HeadSpec, Sandbox

# A busy machine is no reason to fail: the examples are what counts, not their time.
settings.register_profile("project", deadline=None)
settings.load_profile("project")

# A shell lets what it runs in the background ignore these signals, and all that is started there inherits it:
# Ctrl-C in a test would do nothing.
for number, action in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, action)


def pytest_collection_finish() -> None:
    """Keep the garbage collector away from thousands of collected tests.

    All threads of a process stand still meanwhile: servers, schedulers, clusters and the test itself.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_configuration_of_an_earlier_test() -> Iterator[None]:
    """Let each test be like a program of its own, which searches for its configuration."""
    yield
    if (known := current._current.scheduler) is not None and known.stopped:
        current._current.scheduler = current._current.given = None


@pytest.fixture(autouse=True)
def _no_scheduler_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """End the schedulers that the programs of a test have started in the background."""
    folder = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if folder is not None:
        end_schedulers(folder)


@pytest.fixture(autouse=True, scope="session")
def _no_scheduler_is_left_at_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The same for homes that several tests share."""
    yield
    end_schedulers(tmp_path_factory.getbasetemp())


def end_schedulers(folder: Path) -> None:
    """End every background scheduler whose store is below this folder."""
    for pipe in folder.rglob("scheduler.pipe"):
        assert ask_to_end(ControlFiles(pipe.parent)), f"a scheduler did not end: {pipe.parent}"


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Two real clusters for all tests that need several. Who breaks one starts it again."""
    heads = [HeadSpec(name="centos", cpus=4), HeadSpec(name="mac", cpus=2)]
    with Sandbox(tmp_path_factory.mktemp("sandbox"), heads) as running:
        yield running


@pytest.fixture(scope="session")
def real_head(sandbox: Sandbox) -> Head:
    """One real Ray head for tests that only need some cluster: they must not break it."""
    return sandbox.heads["centos"]


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server; each test uses a schema of its own."""
    with a_postgres(durable=False) as server:
        yield server
