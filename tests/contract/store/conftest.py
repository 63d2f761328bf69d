"""Every store passes the same tests: one that lives in memory, one in files."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.store.leader import Leader

from ray_multicluster_scheduler.store import SqlStore, open_memory_store, open_store


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStore]:
    opened = open_memory_store() if request.param == "memory" else open_store(tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture
def leader(store: SqlStore) -> Leader:
    return Leader(store)
