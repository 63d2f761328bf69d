"""Every store passes the same tests: in memory, in files, on a PostgreSQL server."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.leader import Leader
from tests.support.postgres import PostgresServer

from ray_multicluster_scheduler.store import Store, open_memory_store, open_store
from ray_multicluster_scheduler.store.postgres.database import PostgresDatabase, postgres_address
from ray_multicluster_scheduler.store.postgres.opening import open_postgres_store

#: Opens the store of a test once more, as another process would.
OpenStore = Callable[[], Store]


def opener(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> OpenStore:
    """Return a function that opens the same store again and again."""
    if kind == "sqlite":
        return lambda: open_store(tmp_path / "store")
    server: PostgresServer = request.getfixturevalue("postgres")
    address = postgres_address(server.url(f"t{uuid.uuid4().hex[:12]}"))
    return lambda: open_postgres_store(address)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    # These tests say what time it is; `test_races.py` leaves that to the server.
    monkeypatch.setattr(PostgresDatabase, "time", lambda _, _tx, own: own)
    opened = open_memory_store() if request.param == "memory" else opener(request, request.param, tmp_path)()
    yield opened
    opened.close()


@pytest.fixture
def leader(store: Store) -> Leader:
    return Leader(store)
