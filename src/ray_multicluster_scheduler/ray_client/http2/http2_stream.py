"""One gRPC call, as its handler sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ray_multicluster_scheduler.ray_client.http2 import frames
from ray_multicluster_scheduler.ray_client.http2.headers import Headers, encode
from ray_multicluster_scheduler.ray_client.http2.http2_errors import (
    ConnectionLost,
    StreamReset,
    UnreadableMessage,
)
from ray_multicluster_scheduler.ray_client.http2.stream_flow import PLAIN_END, RESPONSE, StreamFlow

if TYPE_CHECKING:
    from ray_multicluster_scheduler.ray_client.http2.http2_connection import Connection

#: gRPC's own limit for a message.
MOST_MESSAGE_BYTES = 4 * 2**20
_TRANSPORT = frozenset({"te", "content-type", "user-agent"})


class Stream(StreamFlow):
    """A gRPC call at a server (`is_server`) or at a client.

    As a context manager it is reset at the end, unless it is over or spliced: whoever opens a call and is
    cancelled, or fails, leaves nothing behind.
    """

    __slots__ = ("_half_read",)

    def __init__(self, connection: Connection, stream_id: int, headers: Headers, *, is_server: bool) -> None:
        super().__init__(connection, stream_id, headers, is_server=is_server)
        self._half_read = bytearray()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.is_spliced:
            self.reset()

    @property
    def path(self) -> str:
        """The method that is called: `/package.Service/Method`."""
        return next((value for name, value in self.headers if name == ":path"), "")

    @property
    def metadata(self) -> list[tuple[str, str]]:
        """The headers of the request that the caller chose."""
        return [
            (name, value)
            for name, value in self.headers
            if not name.startswith((":", "grpc-")) and name not in _TRANSPORT
        ]

    @property
    def peer(self) -> tuple[str, int]:
        """Host and port of the other end of the connection."""
        return self.connection.peer

    @property
    def is_lost(self) -> bool:
        """Tell whether the connection was lost before the stream was over."""
        return isinstance(self._error, ConnectionLost)

    @property
    def buffered(self) -> int:
        """Bytes that wait here, to be read or to be sent."""
        return self._unread.size + self._queue.size + len(self._half_read)

    async def read_message(self, most_bytes: int = MOST_MESSAGE_BYTES) -> bytes | None:
        """Return the next message, or None after the last one.

        Raises `StreamReset` or `ConnectionLost`, and `UnreadableMessage` if it is compressed or larger than
        `most_bytes`; then, as after a cancellation, the stream can still be spliced and loses nothing.
        """
        assert not self.is_spliced, "a spliced stream reads by itself"
        message = self._half_read
        while True:
            self._raise_error()
            if self._read_into(message, most_bytes):
                self._half_read = bytearray()
                return bytes(memoryview(message)[frames.PREFIX_BYTES :])
            if self.remote_ended and not self._unread.size:
                if message:
                    raise StreamReset(frames.PROTOCOL_ERROR, "the stream ended inside a message")
                return None
            await self._changed()

    def _read_into(self, message: bytearray, most_bytes: int) -> bool:
        """Move what is there of the next message; tell whether it is whole."""
        self._take(message, frames.PREFIX_BYTES)
        if len(message) < frames.PREFIX_BYTES:
            return False
        compressed, size = frames.parse_prefix(message)
        if compressed:
            raise UnreadableMessage("a compressed message")
        if size > most_bytes:
            raise UnreadableMessage(f"a message of {size} bytes, more than {most_bytes}")
        self._take(message, frames.PREFIX_BYTES + size)
        return len(message) == frames.PREFIX_BYTES + size

    def _take(self, message: bytearray, size: int) -> None:
        while self._unread.size and len(message) < size:
            chunk = self._unread.take(size - len(message))
            message += chunk
            self.credit(len(chunk))

    async def send_message(self, message: bytes) -> None:
        """Send one message, and wait until it has gone to the socket."""
        assert not self.is_spliced, "a spliced stream sends by itself"
        self._raise_error()
        if self.is_over or self._end is not None:
            raise StreamReset(frames.STREAM_CLOSED, "this side of the stream has ended")
        if not self._headers_sent:
            self._headers_sent = True
            self.out.headers(self.id, encode(RESPONSE), end_stream=False)
        self._queue.push(frames.message_prefix(len(message)))
        self._queue.push(message)
        self._send_queue()
        while self._queue.size and not self.is_over:
            await self._changed()
        self._raise_error()

    def half_close(self) -> None:
        """Say that no further message will follow (client)."""
        if not self.is_over and self._end is None:
            self._end = PLAIN_END
            self._send_queue()

    async def closed(self) -> None:
        """Wait until the stream is over: its last frame is sent or received, or it was reset or lost."""
        while not self.is_over:
            await self._changed()
