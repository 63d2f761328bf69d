"""Every store passes the same tests: in memory, in files, on a PostgreSQL server."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.contract.store.leader import Leader
from tests.postgres_server import PostgresServer

from ray_multicluster_scheduler.store import SqlStore, open_memory_store, open_store
from ray_multicluster_scheduler.store.postgres.open_postgres import open_postgres_store
from ray_multicluster_scheduler.store.postgres.postgres_database import PostgresDatabase
from ray_multicluster_scheduler.store.postgres.postgres_url import postgres_address

#: Opens the store of a test once more, as another process would.
OpenStore = Callable[[], SqlStore]


def opener(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> OpenStore:
    """Return a function that opens the same store again and again."""
    if kind == "sqlite":
        return lambda: open_store(tmp_path / "store")
    server: PostgresServer = request.getfixturevalue("postgres")
    address = postgres_address(server.url(f"t{uuid.uuid4().hex[:12]}"))
    return lambda: open_postgres_store(address)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SqlStore]:
    # These tests say what time it is; `test_races.py` leaves that to the server.
    monkeypatch.setattr(PostgresDatabase, "time", lambda _, _tx, own: own)
    opened = open_memory_store() if request.param == "memory" else opener(request, request.param, tmp_path)()
    yield opened
    opened.close()


@pytest.fixture
def leader(store: SqlStore) -> Leader:
    return Leader(store)
