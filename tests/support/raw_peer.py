"""An HTTP/2 client that does exactly what a test says, also what no client should do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple, TypeAlias

import hpack
from tests.integration.relay.relay_scene import WAIT_S

from raymc_relay import frames

REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/echo.Echo/Bidi"),
    (":authority", "localhost"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]


class Frame(NamedTuple):
    kind: int
    flags: int
    stream_id: int
    payload: bytes


def message(data: bytes) -> bytes:
    return frames.message_prefix(len(data)) + data


class RawPeer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.encoder = hpack.Encoder()
        self.decoder = hpack.Decoder()
        self.seen: list[Frame] = []

    @classmethod
    async def dial(cls, port: int, settings: dict[int, int] | None = None) -> RawPeer:
        peer = cls(*await asyncio.open_connection("127.0.0.1", port))
        peer.send(frames.PREFACE + frames.settings(settings or {}))
        return peer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def block(self, headers: Iterable[tuple[str, str]]) -> bytes:
        return self.encoder.encode(list(headers))

    def request(self, stream_id: int, path: str = "/echo.Echo/Bidi", *, ends: bool = False) -> None:
        fields = [(name, path if name == ":path" else value) for name, value in REQUEST]
        self.send(frames.header_frames(stream_id, self.block(fields), end_stream=ends, most=16_384))

    def data(self, stream_id: int, payload: bytes, *, ends: bool = False) -> None:
        self.send(frames.frame(frames.DATA, frames.END_STREAM if ends else 0, stream_id, payload))

    async def read(self) -> Frame | None:
        """Return the next frame, or None when the connection is closed."""
        try:
            header = await asyncio.wait_for(self.reader.readexactly(9), WAIT_S)
            word, flags, stream_id = frames.unpack_header(header)
            payload = await asyncio.wait_for(self.reader.readexactly(word >> 8), WAIT_S)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        found = Frame(word & 0xFF, flags, stream_id, payload)
        self.seen.append(found)
        return found

    async def until(self, kind: int, stream_id: int | None = None, *, flags: int = 0) -> Frame:
        """Return the next frame of a kind; those before it are in `seen`."""
        while (found := await self.read()) is not None:
            if found.kind == kind and found.flags & flags == flags and stream_id in {None, found.stream_id}:
                return found
        raise AssertionError(f"closed without a frame of kind {kind}; there were {self.seen}")

    async def ping(self) -> list[Frame]:
        """Wait until all that was sent has been handled; return the frames that came meanwhile."""
        count = len(self.seen)
        self.send(frames.ping(b"00000000"))
        await self.until(frames.PING, flags=frames.ACK)
        return self.seen[count:-1]

    async def closing_code(self) -> int:
        """Return the code of GOAWAY, and check that the connection is closed after it."""
        found = await self.until(frames.GOAWAY)
        assert await self.read() is None
        return frames.parse_goaway(found.payload)[1]

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


Dial: TypeAlias = Callable[..., Awaitable[RawPeer]]


@asynccontextmanager
async def raw_server(serve: Callable[[RawPeer], Awaitable[None]]) -> AsyncIterator[int]:
    """A server that does exactly what a test says; yields its port."""
    peers: list[RawPeer] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(RawPeer(reader, writer))
        await serve(peers[-1])

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for peer in peers:
            await peer.close()


def data_of(found: Iterable[Frame], stream_id: int) -> bytes:
    return b"".join(
        frame.payload for frame in found if frame.kind == frames.DATA and frame.stream_id == stream_id
    )


@asynccontextmanager
async def dialing() -> AsyncIterator[Dial]:
    """Connect clients that a test plays by itself, and close them."""
    peers: list[RawPeer] = []

    async def connected(port: int, settings: dict[int, int] | None = None) -> RawPeer:
        peers.append(await RawPeer.dial(port, settings))
        return peers[-1]

    yield connected
    for peer in peers:
        await peer.close()
