"""What the tests of the relay share."""

from collections.abc import AsyncIterator

import pytest
from tests.integration.ray_client.raw_peer import Dial, RawPeer
from tests.integration.ray_client.relay_scene import Upstream, upstream_server


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    """A real gRPC server."""
    async with upstream_server() as running:
        yield running


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """Connects clients that a test plays by itself, and closes them."""
    peers: list[RawPeer] = []

    async def connected(port: int, settings: dict[int, int] | None = None) -> RawPeer:
        peers.append(await RawPeer.dial(port, settings))
        return peers[-1]

    yield connected
    for peer in peers:
        await peer.close()
