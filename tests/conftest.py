"""What tests of several folders share."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings
from tests.postgres_server import PostgresServer, a_postgres, binaries

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
    if binaries() is None:
        pytest.skip("NOT TESTED: no PostgreSQL here; install the package pgserver, or Debian's postgresql")
    with a_postgres(durable=False) as server:
        yield server
