"""What tests of the service share: a store in memory, and its leader."""

from collections.abc import Iterator

import pytest
from tests.contract.store.leader import Leader

from ray_multicluster_scheduler.store import SqlStore, open_memory_store


@pytest.fixture
def store() -> Iterator[SqlStore]:
    opened = open_memory_store()
    yield opened
    opened.close()


@pytest.fixture
def leader(store: SqlStore) -> Leader:
    return Leader(store)
