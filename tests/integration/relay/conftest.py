"""What the tests of the relay share."""

from collections.abc import AsyncIterator

import pytest
from tests.integration.relay.relay_scene import Upstream, upstream_server
from tests.support.raw_peer import Dial, dialing


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    """A real gRPC server."""
    async with upstream_server() as running:
        yield running


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """Connects clients that a test plays by itself, and closes them."""
    async with dialing() as connected:
        yield connected
