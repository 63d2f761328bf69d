"""Websockets let their server end."""

import asyncio
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send
from tests.support.waiting import PATIENCE_S
from uvicorn.server import ServerState

from ray_multicluster_scheduler.server.protocol import CarefulWebSocket

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
#: A frame that closes, with status 1000, under a mask of zeros.
CLOSE = b"\x88\x82" + bytes(4) + (1000).to_bytes(2, "big")


class SlowTransport(asyncio.Transport):
    """A connection whose end takes its time, as with TLS."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = asyncio.Queue[bytes]()
        self.closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent.put_nowait(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


async def accepting(_: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


async def test_a_websocket_that_has_begun_to_close_does_not_keep_a_server_from_ending() -> None:
    config = uvicorn.Config(accepting, log_config=None)
    config.load()
    state, transport = ServerState(), SlowTransport()
    peer = CarefulWebSocket(config=config, server_state=state, app_state={})
    peer.connection_made(transport)
    peer.data_received(UPGRADE)
    assert (await asyncio.wait_for(transport.sent.get(), PATIENCE_S)).startswith(b"HTTP/1.1 101")
    peer.data_received(CLOSE)
    peer.shutdown()
    assert transport.closed
    await asyncio.gather(*state.tasks)
