"""What tests of the service share: a store in memory, and its leader."""

from collections.abc import Iterator

import pytest
from tests.support.leader import Leader

from ray_multicluster_scheduler.store import Store, open_memory_store


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_memory_store()
    yield opened
    opened.close()


@pytest.fixture
def leader(store: Store) -> Leader:
    return Leader(store)
