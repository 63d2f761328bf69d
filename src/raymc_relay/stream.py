"""One gRPC call: how its bytes flow, how it ends, and what its handler sees of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from raymc_relay import frames
from raymc_relay.errors import ConnectionLost, ProtocolError, RelayError, StreamReset, UnreadableMessage
from raymc_relay.frames import CANCEL, END_STREAM, NO_ERROR, Chunk
from raymc_relay.headers import Headers, encode, is_plain, is_response
from raymc_relay.outgoing import ByteQueue

if TYPE_CHECKING:
    from raymc_relay.connection import Connection


# How bytes flow through a stream, and how it ends.
#
# A stream of a server is over when its last frame is sent, one of a client when the last frame of the answer
# has come: with that, a gRPC call has its status, and what the client still sends has no meaning.
#
# Two streams that are spliced pass on to each other what they receive. Who sends gets credit for what the
# other side's socket has taken, so what waits here is bounded by the windows of the receiving side.


UNAVAILABLE = 14
RESPONSE: Headers = ((":status", "200"), ("content-type", "application/grpc"))
_OF_RESPONSE_ONLY = frozenset({":status", "content-type"})
#: The end of a stream without trailers.
PLAIN_END = b""


class StreamFlow:
    """The parts of a stream that its connection, and the stream that it is spliced with, work on."""

    __slots__ = (
        "_end",
        "_error",
        "_free",
        "_grow",
        "_headers_sent",
        "_local_ended",
        "_other",
        "_owed",
        "_queue",
        "_step",
        "_unread",
        "_waiters",
        "allowed",
        "connection",
        "handler",
        "headers",
        "id",
        "is_over",
        "is_server",
        "is_spliced",
        "out",
        "received",
        "remote_ended",
        "response",
        "trailers",
        "window",
    )

    def __init__(self, connection: Connection, stream_id: int, headers: Headers, *, is_server: bool) -> None:
        limits = connection.limits
        self.connection = connection
        self.out = connection.out
        self.id = stream_id
        #: Of the request, with those that begin with a colon.
        self.headers = headers
        #: Of the answer, at a client, when they are there: the first headers, and the last ones.
        self.response: Headers | None = None
        self.trailers: Headers | None = None
        self.is_server = is_server
        self.is_over = False
        self.is_spliced = False
        #: The task that answers the call.
        self.handler: asyncio.Task[None] | None = None
        self._error: RelayError | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._other: StreamFlow | None = None
        # Receive side: unread bytes, the total received and allowed, and credit that is not announced yet.
        self._unread = ByteQueue()
        self.remote_ended = False
        self.received = 0
        self.allowed = limits.first_window_bytes
        self._grow = limits.stream_window_bytes - limits.first_window_bytes
        self._owed = 0
        self._step = limits.first_window_bytes // 4
        # Send side: waiting bytes, how many of them owe no credit to the other side, and the peer's window.
        self._headers_sent = not is_server
        self._queue = ByteQueue()
        self._free = 0
        self._end: bytes | None = None
        self._local_ended = False
        self.window = self.out.first_window

    # -- what the connection calls

    def data_received(self, payload: Chunk, padding: int, *, ends: bool) -> None:
        """Take a part of what the peer sends."""
        if padding:
            self.credit(padding)
        if ends:
            self.remote_ended = True
        if self._other is not None:
            self._other.relay(payload, ends=ends)
        elif payload:
            self._unread.push(payload)
        if ends and not self.is_server:
            self._leave(NO_ERROR)
        if self._waiters:
            self._notify()

    def headers_received(self, headers: Headers, *, ends: bool) -> None:
        """Take the headers of the answer, or the last headers of the peer."""
        if self.remote_ended:
            raise ProtocolError(frames.STREAM_CLOSED, "headers after the end of a stream")
        if self.is_server or self.response is not None:
            if not ends:
                raise ProtocolError(frames.PROTOCOL_ERROR, "headers in the middle of a stream")
            if not is_plain(headers):
                self.connection.break_stream(self.id, frames.PROTOCOL_ERROR)
                return
            self.trailers = headers
        elif not is_response(headers):
            self.connection.break_stream(self.id, frames.PROTOCOL_ERROR)
            return
        elif not ends and headers[0][1].startswith("1"):
            return  # an answer before the answer, which gRPC does not use
        else:
            self.response = headers
            self.trailers = headers if ends else None
        if ends:
            self.remote_ended = True
        if self._other is not None:
            self._other.relay_headers(headers, ends=ends)
        if ends and not self.is_server:
            self._leave(NO_ERROR)
        self._notify()

    def reset_received(self, code: int) -> None:
        """The peer has ended the stream."""
        self._error = StreamReset(code)
        self._cancel_handler()
        self._fail(code)

    def connection_lost(self, reason: str) -> None:
        """The connection of this stream has ended."""
        self._error = ConnectionLost(reason)
        self._cancel_handler()
        other = self._other
        self._leave(None)
        if other is None:
            return
        if other.is_server:
            other.finish(UNAVAILABLE, reason)
        else:
            other.reset(CANCEL)

    def window_increased(self, increment: int) -> None:
        """The peer allows more bytes; less, if a setting was changed to a smaller value."""
        self.window += increment
        if self._queue.size and self.window > 0:
            self._send_queue()

    # -- sending

    def relay(self, payload: Chunk, *, ends: bool) -> None:
        """Send what the other stream has received, now or later."""
        size = len(payload)
        out = self.out
        if (
            size <= self.window
            and size <= out.window
            and size <= out.most_frame
            and not out.paused
            and not self._queue.size
        ):
            other = self._other
            if size or ends:
                self.window -= size
                out.window -= size
                out.data(self.id, payload, END_STREAM if ends else 0)
                if ends:
                    self._end = PLAIN_END
                    self._sent_end()
            if other is not None:
                other.credit(size)
            return
        if size:
            self._queue.push(payload)
        if ends:
            self._end = PLAIN_END
        self._send_queue()

    def relay_headers(self, headers: Headers, *, ends: bool) -> None:
        """Send the headers that the other stream has received, in their order with the data."""
        if not self.is_server:
            self.relay(b"", ends=ends)  # gRPC knows no trailers of a request
            return
        if self._headers_sent:
            if ends:
                self._end = encode(field for field in headers if field[0] not in _OF_RESPONSE_ONLY)
                self._send_queue()
            return
        self._headers_sent = True
        if ends:
            self._end = encode(headers)
            self._send_queue()
        else:
            self.out.headers(self.id, encode(headers), end_stream=False)

    def pump(self, most: int) -> None:
        """Send at most this many of the bytes that wait; wait again if there are more."""
        out, queue = self.out, self._queue
        room = min(self.window, out.window, most)
        sent = 0
        while queue.size and sent < room:
            chunk = queue.take(min(room - sent, out.most_frame))
            sent += len(chunk)
            last = self._end == PLAIN_END and not queue.size
            out.data(self.id, chunk, END_STREAM if last else 0)
        self.window -= sent
        out.window -= sent
        if sent:
            free = min(self._free, sent)
            self._free -= free
            if self._other is not None:
                self._other.credit(sent - free)
        if queue.size:
            if self.window > 0:
                out.waiting[self] = None
        elif self._end is not None:
            if self._end != PLAIN_END:
                out.headers(self.id, self._end, end_stream=True)
            elif not sent:
                out.data(self.id, b"", END_STREAM)
            self._sent_end()
        if self._waiters:
            self._notify()

    def _send_queue(self) -> None:
        if not self._queue.size:
            self.pump(0)  # only the end is to be sent, and no window holds it back
        elif self.window > 0:
            self.out.waiting[self] = None
            self.out.pump()

    def _sent_end(self) -> None:
        self._local_ended = True
        if self.is_server:
            self._leave(NO_ERROR)

    def credit(self, size: int) -> None:
        """Let the peer send as many bytes as were passed on."""
        if self.is_over:
            return  # it was settled when the stream ended
        self._owed += size
        if self._owed >= self._step and not self.remote_ended:
            increment = self._owed + self._grow
            self._owed = self._grow = 0
            self._step = self.connection.limits.stream_window_bytes // 4
            self.allowed += increment
            self.out.control(frames.window_update(self.id, increment))
        self.connection.credit(size)

    # -- the end

    def finish(self, status: int, message: str = "") -> None:
        """End the call with a gRPC status (server), after all that was sent before it.

        The stream that it is spliced with is reset. Nothing happens if the call has ended already.
        """
        assert self.is_server, "a client has no status to give"
        if self.is_over or self._end is not None:
            return
        other = self._cut()
        trailers: Headers = (("grpc-status", str(status)),)
        if message:
            trailers += (("grpc-message", frames.percent_encoded(message)),)
        self._end = encode(trailers if self._headers_sent else RESPONSE + trailers)
        self._headers_sent = True
        self._send_queue()
        if other is not None:
            other.reset(CANCEL)

    def reset(self, code: int = CANCEL) -> None:
        """End the stream at once, and the one that it is spliced with."""
        if not self.is_over:
            self._error = StreamReset(code)
            self.out.control(frames.rst_stream(self.id, code))
            self._fail(code)

    def _fail(self, code: int) -> None:
        other = self._other
        self._leave(None)
        if other is not None:
            other.reset(code)

    def _leave(self, code: int | None) -> None:
        """Leave the connection; with a code, tell the peer, if it would go on to send or to wait."""
        if self.is_over:
            return
        if code is not None and not (self.remote_ended and self._local_ended):
            self.out.control(frames.rst_stream(self.id, code))
        self.is_over = True
        self._cut()
        self._queue.clear()
        self.out.waiting.pop(self, None)
        self.connection.credit(self._unread.size)
        self.connection.forget(self)
        if self._error is not None or self.is_server:
            self._unread.clear()
        self._notify()

    def _cut(self) -> StreamFlow | None:
        """Separate this stream from the one that it is spliced with; all credit is given for what waits."""
        other, self._other = self._other, None
        if other is not None:
            other._other = None
            for one, its in ((self, other), (other, self)):
                owed = one._queue.size - one._free
                (its.connection if its.is_over else its).credit(owed)
                one._free = one._queue.size
        return other

    def _cancel_handler(self) -> None:
        """End a handler whose client has gone; one that waits for this stream gets an error instead."""
        if self.handler is not None and not self.is_spliced and not self._waiters:
            self.handler.cancel()

    async def _changed(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _notify(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error


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


def splice(downstream: Stream, upstream: Stream) -> None:
    """Pass everything on between a client's call here and a call to a server; no task wakes up for it.

    What was received and not read goes first, a message that was read in part included. A reset of one is a
    reset of the other. When the connection of `upstream` is lost, the client gets the status UNAVAILABLE with
    the reason; when that of `downstream` is lost, the other call is cancelled.
    """
    assert (downstream.is_server, upstream.is_server) == (True, False), "first the client's call, then ours"
    assert not downstream.is_spliced, "a stream is spliced once"
    assert not upstream.is_spliced, "a stream is spliced once"
    downstream.is_spliced = upstream.is_spliced = True
    error = upstream._error
    if downstream.is_over:
        upstream.reset(CANCEL)
    elif isinstance(error, StreamReset):
        downstream.reset(error.code)
    elif error is not None:
        downstream.finish(UNAVAILABLE, str(error))
    else:
        if not upstream.is_over:
            downstream._other, upstream._other = upstream, downstream
            _hand_over(downstream, upstream)
            if downstream.remote_ended and upstream._end is None:
                upstream._end = PLAIN_END
            if upstream._queue.size or (upstream._end is not None and not upstream._local_ended):
                upstream._send_queue()
        _hand_over_answer(downstream, upstream)


def _hand_over_answer(downstream: Stream, upstream: Stream) -> None:
    if upstream.response is not None and upstream.response is not upstream.trailers:
        downstream.relay_headers(upstream.response, ends=False)
    _hand_over(upstream, downstream)
    if upstream.trailers is not None:
        downstream.relay_headers(upstream.trailers, ends=True)
    elif upstream.remote_ended:
        downstream.relay(b"", ends=True)
    elif downstream._queue.size:
        downstream._send_queue()


def _hand_over(source: Stream, target: Stream) -> None:
    """Queue what `source` has received. Credit was given for what was read, and for all if it is over."""
    target._free = target._queue.size
    half_read, source._half_read = source._half_read, bytearray()
    if half_read:
        target._queue.push(bytes(half_read))
        target._free += len(half_read)
    if source.is_over:
        target._free += source._unread.size
    while source._unread.size:
        target._queue.push(source._unread.take(source._unread.size))
