"""One HTTP/2 connection, in the role of the server or of the client."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar, cast

from raymc_relay import frames
from raymc_relay.errors import ConnectionLost, ProtocolError, TooManyStreams
from raymc_relay.frames import (
    DATA,
    DEFAULT_FRAME,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    HEADER_BYTES,
    LARGEST_FRAME,
    LARGEST_WINDOW,
    PADDED,
    PROTOCOL_ERROR,
    Chunk,
    unpack_header,
)
from raymc_relay.headers import HeaderBlock, HeaderBlocks, HeaderDecoder, Headers, encode, is_request
from raymc_relay.limits import RelayLimits, WorkLimit
from raymc_relay.outgoing import Outgoing, turn_of
from raymc_relay.stream import Stream, StreamFlow

#: DATA up to this size is copied out of the received buffer, and is waited for as a whole.
WHOLE_BYTES = DEFAULT_FRAME
#: The kinds of frames that HTTP/2 defines.
KINDS = 10

S = TypeVar("S")


class FrameReader(Generic[S]):
    """Calls a method for each frame. DATA of a large frame is handed on as it comes, before it is whole.

    `S` is whatever `data_begins` returns for a stream.
    """

    def __init__(self, *, most_frame: int, most_control: int) -> None:
        self._most_frame = most_frame
        self._most_control = most_control
        self._rest = b""
        #: Of a large frame under way: DATA that is to come, what is to be dropped after it, whose it is.
        self._left = 0
        self._drop = 0
        self._owner: S | None = None
        self._ends = False

    def data_begins(self, stream_id: int, size: int) -> S | None:
        """A frame of DATA begins that takes `size` bytes of the windows."""
        raise NotImplementedError

    def data(self, owner: S | None, payload: Chunk, padding: int, *, ends: bool) -> None:
        """Take a part of the DATA of a stream; `padding` bytes of its frame carry nothing."""
        raise NotImplementedError

    def control(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Take a whole frame of another kind."""
        raise NotImplementedError

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the peer."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        position, end = 0, len(data)
        if self._left or self._drop:
            position = self._go_on(data, 0)
        while end - position >= HEADER_BYTES:
            word, flags, stream_id = unpack_header(data, position)
            size = word >> 8
            start = position + HEADER_BYTES
            stop = start + size
            if word & 0xFF == DATA and stop <= end and not flags & PADDED and size <= self._most_frame:
                owner = self.data_begins(stream_id & LARGEST_WINDOW, size)
                payload = data[start:stop] if size <= WHOLE_BYTES else memoryview(data)[start:stop]
                self.data(owner, payload, 0, ends=bool(flags & END_STREAM))
                position = stop
                continue
            after = self._other(data, position, size, word & 0xFF, flags, stream_id & LARGEST_WINDOW)
            if after is None:
                break
            position = after
        if position < end:
            self._rest = data[position:]

    def _other(
        self, data: bytes, position: int, size: int, kind: int, flags: int, stream_id: int
    ) -> int | None:
        """Handle a frame that is no whole plain DATA; return where it ends, or None: more must come."""
        if size > self._most_frame:
            raise ProtocolError(FRAME_SIZE_ERROR, f"a frame of {size} bytes")
        start = position + HEADER_BYTES
        stop = start + size
        if kind == DATA:
            if stop > len(data) and (size <= WHOLE_BYTES or start == len(data)):
                return None
            return self._begin_data(data, start, size, flags, stream_id)
        if kind >= KINDS:
            self._left, self._drop = 0, size
            self._owner, self._ends = None, False
            self.check_unknown()
            return self._go_on(data, start) if size else start
        if size > self._most_control:
            raise ProtocolError(FRAME_SIZE_ERROR, f"a frame of kind {kind} with {size} bytes")
        if stop > len(data):
            return None
        self.control(kind, flags, stream_id, data[start:stop])
        return stop

    def check_unknown(self) -> None:
        """Refuse a frame of an unknown kind where none may stand."""

    def _begin_data(self, data: bytes, start: int, size: int, flags: int, stream_id: int) -> int:
        owner = self.data_begins(stream_id, size)
        padding = 0
        if flags & PADDED:
            if not size or data[start] >= size:
                raise ProtocolError(PROTOCOL_ERROR, "more padding than its frame has bytes")
            padding = data[start] + 1
            start += 1
        self._left = size - padding
        self._drop = max(padding - 1, 0)
        self._owner, self._ends = owner, bool(flags & END_STREAM)
        if padding or not self._left:
            self.data(owner, b"", padding, ends=self._ends and not self._left)
        return self._go_on(data, start)

    def _go_on(self, data: bytes, position: int) -> int:
        """Hand on the next part of the frame under way and return where it ends."""
        available = len(data) - position
        if self._left and available:
            size = min(self._left, available)
            self._left -= size
            payload = memoryview(data)[position : position + size]
            self.data(self._owner, payload, 0, ends=self._ends and not self._left)
            position += size
            available -= size
        if not self._left:
            self._owner = None
        dropped = min(self._drop, available) if not self._left else 0
        self._drop -= dropped
        return position + dropped


#: Whether frames of a kind belong to a stream (None: or to the connection), and their length, if it is fixed.
RULES: dict[int, tuple[bool | None, int | None]] = {
    frames.HEADERS: (True, None),
    frames.PRIORITY: (True, 5),
    frames.RST_STREAM: (True, 4),
    frames.SETTINGS: (False, None),
    frames.PUSH_PROMISE: (True, None),
    frames.PING: (False, 8),
    frames.GOAWAY: (False, None),
    frames.WINDOW_UPDATE: (None, 4),
    frames.CONTINUATION: (True, None),
}
#: Padding, priority, and what a block may have above its own limit before that is looked at.
HEADERS_EXTRA = 512


#: How long the peer may take to read the last frames before the socket is closed.
LINGER_S = 2.0
#: A peer whose machine has vanished is noticed after a minute and a half, if nothing is on its way to it.
KEEPALIVE = {"TCP_KEEPIDLE": 45, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 3}


class Connection(FrameReader[Stream], asyncio.Protocol):
    """One HTTP/2 connection. It never stops reading: what the peer may send is bounded by its windows.

    So two connections never wait for each other: a frame that opens a window is always read.
    """

    def __init__(
        self,
        limits: RelayLimits,
        accept: Callable[[Stream], None] | None = None,
        welcome: Callable[[Connection], bool] | None = None,
    ) -> None:
        """`accept` takes the streams of the peer: this side is the server. `welcome` may refuse the peer."""
        loop = asyncio.get_running_loop()
        super().__init__(most_frame=limits.frame_bytes, most_control=limits.header_bytes + HEADERS_EXTRA)
        self.limits = limits
        self.turn = turn_of(loop)
        self.is_server = accept is not None
        self.out = Outgoing(self.turn, limits, self._flooded)
        self.streams: dict[int, Stream] = {}
        #: The newest stream of the peer (server).
        self.last_id = 0
        #: The peer takes no further streams.
        self.peer_going = False
        self.most_streams = LARGEST_WINDOW
        #: What came, what may come, and what is to be allowed again.
        self.received = 0
        strangers = limits.strangers if self.is_server else None
        #: Nobody has shown on this connection who it is.
        self.is_stranger = strangers is not None
        self.allowed = limits.connection_window_bytes if strangers is None else strangers.window_bytes
        self._owed = 0
        self._step = self.allowed // 8
        self._decoder = HeaderDecoder(limits.header_bytes)
        self._blocks = HeaderBlocks(most_bytes=limits.header_bytes, most_frames=limits.continuation_frames)
        self._resets = WorkLimit(limits.resets, limits.resets_per_second)
        self._resizes = WorkLimit(limits.resized_windows, limits.resized_windows_per_second)
        self._greeted = False
        self._handlers = {
            frames.HEADERS: self._headers,
            frames.PRIORITY: self._priority,
            frames.RST_STREAM: self._rst_stream,
            frames.SETTINGS: self._settings,
            frames.PUSH_PROMISE: self._push_promise,
            frames.PING: self._ping,
            frames.GOAWAY: self._goaway,
            frames.WINDOW_UPDATE: self._window_update,
            frames.CONTINUATION: self._continuation,
        }
        self._loop = loop
        self._accept = accept
        self._welcome = welcome
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._preface = frames.PREFACE if accept is not None else b""
        self._next_id = 1
        self._going = False
        #: Since when there is this connection, and since when it has had a call, by the clock of the loop.
        self.since = self.used_at = loop.time()
        #: Handlers of streams of this connection that still run.
        self.handlers = 0
        #: Host and port of the other end.
        self.peer: tuple[str, int] = ("", 0)
        #: Why this connection takes no streams any more.
        self.lost: str | None = None
        #: Done when the peer has said what it allows; the result of `closed` is the reason.
        self.ready: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[str] = loop.create_future()

    # -- for users

    @property
    def is_open(self) -> bool:
        """Whether `open` may work."""
        return self.lost is None and not self._going and not self.peer_going and self._transport is not None

    @property
    def _most_own_streams(self) -> int:
        strangers = self.limits.strangers if self.is_stranger else None
        return self.limits.streams if strangers is None else min(self.limits.streams, strangers.streams)

    @property
    def buffered(self) -> int:
        """Bytes of all streams that wait here, and those that the socket has not taken."""
        return self.out.buffered() + sum(stream.buffered for stream in self.streams.values())

    def open(self, headers: Iterable[tuple[str, str]]) -> Stream:
        """Begin a call (client). Raises `ConnectionLost` or `TooManyStreams`."""
        if not self.is_open:
            raise ConnectionLost(self.lost or "the server takes no further calls on this connection")
        if len(self.streams) >= self.most_streams or self._next_id > frames.LARGEST_WINDOW:
            raise TooManyStreams(f"the server takes {self.most_streams} calls at once on one connection")
        stream = Stream(self, self._next_id, tuple(headers), is_server=False)
        self._next_id += 2
        self.streams[stream.id] = stream
        self.out.headers(stream.id, encode(stream.headers), end_stream=False)
        return stream

    def close(self, reason: str = "closed by this side") -> None:
        """End the connection now, and all calls on it; `closed` is done when the peer has read that."""
        self.fail(frames.NO_ERROR, reason)

    def abort(self) -> None:
        """End the connection and close its socket, whatever is left to be sent; soon, `closed` is done."""
        self._end("aborted by this side")
        if self._transport is not None:
            self._transport.abort()

    def go_away(self) -> None:
        """Take no further streams, and close when the last one is over."""
        if self.lost is None and not self._going:
            self._going = True
            self.out.control(frames.goaway(self.last_id, frames.NO_ERROR))
            self.close_if_done()

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the settings of this side."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else (str(peer), 0)
        if self._welcome is not None and not self._welcome(self):
            self.abort()
            return
        _tune(transport.get_extra_info("socket"))
        self.out.attach(self._transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() != "h2":
            self.fail(frames.PROTOCOL_ERROR, "the peer does not speak HTTP/2 (ALPN)")
            return
        self.set_timer()
        self.out.control(self.greeting())

    def data_received(self, data: bytes) -> None:
        """Take what the peer has sent, and write all that follows from it."""
        if self.lost is not None:
            return
        turn = self.turn
        turn.receiving = True
        try:
            if self._preface:
                data = self._without_preface(data)
            self.feed(data)
        except ProtocolError as error:
            self.fail(error.code, str(error))
        finally:
            turn.receiving = False
            turn.flush()

    def pause_writing(self) -> None:
        """The peer does not read fast enough."""
        self.out.pause()

    def resume_writing(self) -> None:
        """The peer has read."""
        self.out.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all streams."""
        self._end(str(exc) if exc is not None and str(exc) else "the peer closed the connection")
        self._transport = None
        if not self.closed.done():
            self.closed.set_result(self.lost or "")

    # -- for this folder

    def data_begins(self, stream_id: int, size: int) -> Stream | None:
        """Count the bytes of a frame against what was allowed."""
        self.check_no_block()
        self.received += size
        if self.received > self.allowed:
            raise ProtocolError(frames.FLOW_CONTROL_ERROR, "more bytes than the window of the connection")
        stream = self.streams.get(stream_id)
        if stream is None:
            self.check_known(stream_id)
            return None
        stream.received += size
        if stream.received > stream.allowed:
            self.break_stream(stream_id, frames.FLOW_CONTROL_ERROR)
            return None
        if stream.remote_ended or (stream.response is None and not self.is_server):
            self.break_stream(stream_id, frames.STREAM_CLOSED)
            return None
        return stream

    def data(self, owner: Stream | None, payload: Chunk, padding: int, *, ends: bool) -> None:
        """Give DATA to its stream; if that is over, only allow the peer to send as much again."""
        if owner is None or owner.is_over:
            self.credit(len(payload) + padding)
        else:
            owner.data_received(payload, padding, ends=ends)

    def is_known(self, stream_id: int) -> bool:
        """Tell whether a stream of this id exists or has existed."""
        return stream_id % 2 == 1 and stream_id < (self.last_id + 1 if self.is_server else self._next_id)

    def request(self, stream_id: int, headers: Headers, *, ends: bool) -> None:
        """Begin a call of the peer (server)."""
        if stream_id % 2 == 0 or self._accept is None:
            raise ProtocolError(frames.PROTOCOL_ERROR, f"a stream with the id {stream_id}")
        self.last_id = stream_id
        if self._going or max(len(self.streams), self.handlers) >= self._most_own_streams:
            self.break_stream(stream_id, frames.REFUSED_STREAM)
            return
        if not is_request(headers):
            self.break_stream(stream_id, frames.PROTOCOL_ERROR)
            return
        stream = Stream(self, stream_id, headers, is_server=True)
        stream.remote_ended = ends
        self.streams[stream_id] = stream
        self._accept(stream)

    def forget(self, stream: StreamFlow) -> None:
        """Drop a stream that is over."""
        self.streams.pop(stream.id, None)
        self.used_at = self._loop.time()
        if self._going or self.peer_going:
            self.close_if_done()

    def close_if_done(self) -> None:
        """Close a connection that takes no streams and has none."""
        if not self.streams and self.lost is None:
            self._end("closed after its last call")
            self._hang_up()

    def fail(self, code: int, reason: str) -> None:
        """Say why, and end the connection."""
        if self.lost is None:
            self.out.control(frames.goaway(self.last_id, code, reason))
            self._end(reason)
            self._hang_up()

    def greeted(self) -> None:
        """The peer has sent its settings."""
        self.clear_timer()
        if not self.ready.done():
            self.ready.set_result(None)

    def set_timer(self) -> None:
        """Wait for the rest of something, but not for ever."""
        self.clear_timer()
        self._timer = self._loop.call_later(
            self.limits.handshake_timeout_s, self.fail, frames.SETTINGS_TIMEOUT, "the peer is too slow"
        )

    def clear_timer(self) -> None:
        """It has come."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _without_preface(self, data: bytes) -> bytes:
        expected = self._preface
        if data[: len(expected)] != expected[: len(data)]:
            raise ProtocolError(frames.PROTOCOL_ERROR, "the client does not speak HTTP/2")
        self._preface = expected[len(data) :]
        return data[len(expected) :]

    def _end(self, reason: str) -> None:
        """End all streams; nothing is sent for them any more."""
        self.clear_timer()
        if self.lost is None:
            self.lost = reason
        self.out.flush()
        self.out.detach()
        if not self.ready.done():
            self.ready.set_result(None)
        for stream in list(self.streams.values()):
            stream.connection_lost(self.lost)

    def _hang_up(self) -> None:
        """Close the socket when the peer does, or soon.

        If it were closed before all that the peer has sent is read, the peer would not get the last frames.
        """
        if self._transport is not None:
            try:
                half = self._transport.can_write_eof() and not self._transport.is_closing()
                (self._transport.write_eof if half else self._transport.close)()
            except OSError:
                self._transport.abort()  # the peer was faster
            self._timer = self._loop.call_later(LINGER_S, self.abort)

    # -- what the frames besides DATA do

    def greeting(self) -> bytes:
        """Return what this side sends first."""
        limits = self.limits
        values = {
            frames.HEADER_TABLE_SIZE: 0,
            frames.INITIAL_WINDOW_SIZE: limits.first_window_bytes,
            frames.MAX_FRAME_SIZE: limits.frame_bytes,
            frames.MAX_HEADER_LIST_SIZE: limits.header_bytes,
        }
        if self.is_server:
            values[frames.MAX_CONCURRENT_STREAMS] = limits.streams
        else:
            values[frames.ENABLE_PUSH] = 0
        window = frames.window_update(0, self.allowed - frames.DEFAULT_WINDOW)
        return (b"" if self.is_server else frames.PREFACE) + frames.settings(values) + window

    def trust(self) -> None:
        """Take the peer for known: it may send more at once, and stay."""
        if self.is_stranger:
            self.is_stranger = False
            assert self.limits.strangers is not None
            more = self.limits.connection_window_bytes - self.limits.strangers.window_bytes
            self._step = self.limits.connection_window_bytes // 8
            self.allowed += more
            if more:  # an update by nothing is an error
                self.out.control(frames.window_update(0, more))

    def credit(self, size: int) -> None:
        """Let the peer send as many bytes again, on any stream."""
        self._owed += size
        if self._owed >= self._step:
            self.allowed += self._owed
            self.out.control(frames.window_update(0, self._owed))
            self._owed = 0

    def check_no_block(self) -> None:
        """Refuse a frame inside a header block."""
        if self._blocks.is_open or not self._greeted:
            raise ProtocolError(PROTOCOL_ERROR, "a frame where none of its kind may be")

    check_unknown = check_no_block

    def check_known(self, stream_id: int) -> None:
        """Refuse a frame of a stream that was never opened."""
        if not self.is_known(stream_id):
            raise ProtocolError(PROTOCOL_ERROR, f"a frame of stream {stream_id}, which was never opened")

    def break_stream(self, stream_id: int, code: int) -> None:
        """End one stream for a mistake of the peer."""
        stream = self.streams.get(stream_id)
        if stream is not None:
            stream.reset(code)
        else:
            self.out.control(frames.rst_stream(stream_id, code))
        self._count_reset()

    def control(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Take a frame that is no DATA."""
        if self._blocks.is_open or not self._greeted:
            self._check_order(kind, flags)
        of_stream, size = RULES[kind]
        if of_stream is not None and of_stream != bool(stream_id):
            raise ProtocolError(PROTOCOL_ERROR, f"a frame of kind {kind} of stream {stream_id}")
        if size is not None and size != len(payload):
            raise ProtocolError(FRAME_SIZE_ERROR, f"a frame of kind {kind} with {len(payload)} bytes")
        self._handlers[kind](flags, stream_id, payload)

    def _check_order(self, kind: int, flags: int) -> None:
        if self._blocks.is_open and kind != frames.CONTINUATION:
            raise ProtocolError(PROTOCOL_ERROR, "a frame inside a header block")
        if not self._greeted and (kind != frames.SETTINGS or flags & frames.ACK):
            raise ProtocolError(PROTOCOL_ERROR, "the first frame is not SETTINGS")

    def _priority(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        """Nobody has priority."""

    def _push_promise(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        raise ProtocolError(PROTOCOL_ERROR, "PUSH_PROMISE was not allowed")

    def _headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        block = self._blocks.begin(flags, stream_id, payload)
        if block is not None:
            self._block(block)
        else:
            self.set_timer()

    def _continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        block = self._blocks.go_on(flags, stream_id, payload)
        if block is not None:
            self.clear_timer()
            self._block(block)

    def _block(self, block: HeaderBlock) -> None:
        headers = self._decoder.decode(block.block)
        stream = self.streams.get(block.stream_id)
        if stream is not None:
            stream.headers_received(headers, ends=block.ends)
        elif self.is_server and block.stream_id > self.last_id:
            self.request(block.stream_id, headers, ends=block.ends)
        else:
            self.check_known(block.stream_id)

    def _rst_stream(self, _flags: int, stream_id: int, payload: bytes) -> None:
        self.check_known(stream_id)
        stream = self.streams.get(stream_id)
        if stream is not None:
            stream.reset_received(frames.number(payload))
        self._count_reset()

    def _ping(self, flags: int, _stream_id: int, payload: bytes) -> None:
        if not flags & frames.ACK:
            self.out.control(frames.ping(payload, ack=True))

    def _goaway(self, _flags: int, _stream_id: int, payload: bytes) -> None:
        if len(payload) < 8:
            raise ProtocolError(FRAME_SIZE_ERROR, "a short GOAWAY")
        last_id, _ = frames.parse_goaway(payload)
        self.peer_going = True
        if not self.is_server:
            for stream in [stream for stream in self.streams.values() if stream.id > last_id]:
                stream.reset_received(frames.REFUSED_STREAM)
        self.close_if_done()

    def _window_update(self, _flags: int, stream_id: int, payload: bytes) -> None:
        increment = frames.number(payload) & LARGEST_WINDOW
        if stream_id == 0:
            self.out.window += increment
            if not increment or self.out.window > LARGEST_WINDOW:
                raise ProtocolError(FLOW_CONTROL_ERROR, "a window that is too large, or no increment of it")
            self.out.pump()
            return
        stream = self.streams.get(stream_id)
        if stream is None:
            self.check_known(stream_id)
        elif not increment or stream.window + increment > LARGEST_WINDOW:
            self.break_stream(stream_id, FLOW_CONTROL_ERROR if increment else PROTOCOL_ERROR)
        else:
            stream.window_increased(increment)

    def _settings(self, flags: int, _stream_id: int, payload: bytes) -> None:
        if len(payload) % 6 or (flags & frames.ACK and payload):
            raise ProtocolError(FRAME_SIZE_ERROR, "SETTINGS of a wrong length")
        if flags & frames.ACK:
            self._decoder.settings_acknowledged()
            return
        before = self.out.first_window
        for key, value in frames.parse_settings(payload):
            self._setting(key, value)
        # gRPC counts on a larger window only after this answer: it goes before the data that need the window.
        self.out.control(frames.SETTINGS_ACK)
        if self.out.first_window != before:
            self._count_resized(1 + len(self.streams))
            self._resize_windows(self.out.first_window - before)
        if not self._greeted:
            self._greeted = True
            self.greeted()

    def _setting(self, key: int, value: int) -> None:
        if key == frames.INITIAL_WINDOW_SIZE:
            if value > LARGEST_WINDOW:
                raise ProtocolError(FLOW_CONTROL_ERROR, "an initial window that is too large")
            self.out.first_window = value
        elif key == frames.MAX_FRAME_SIZE:
            if not frames.DEFAULT_FRAME <= value <= LARGEST_FRAME:
                raise ProtocolError(PROTOCOL_ERROR, "a frame size that is not allowed")
            self.out.most_frame = value
        elif key == frames.MAX_CONCURRENT_STREAMS:
            self.most_streams = value
        elif key == frames.HEADER_TABLE_SIZE:
            self.out.table_resized()

    def _resize_windows(self, change: int) -> None:
        for stream in list(self.streams.values()):
            if stream.window + change > LARGEST_WINDOW:
                raise ProtocolError(FLOW_CONTROL_ERROR, "a window that is too large")
            stream.window_increased(change)

    def _count_resized(self, windows: int) -> None:
        if self.is_server and self._resizes.exceeded(asyncio.get_running_loop().time(), windows):
            raise ProtocolError(frames.ENHANCE_YOUR_CALM, "too many changes of the windows of streams")

    def _count_reset(self) -> None:
        if self.is_server and self._resets.exceeded(asyncio.get_running_loop().time()):
            raise ProtocolError(frames.ENHANCE_YOUR_CALM, "too many streams that were reset")

    def _flooded(self) -> None:
        self.fail(frames.ENHANCE_YOUR_CALM, "the peer does not read the answers that it asks for")


def _tune(sock: socket.socket | None) -> None:
    if sock is None or sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    # asyncio does this only for sockets whose protocol was named when they were made.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):  # not every system has all of them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
