"""What the frames besides DATA do to a connection."""

from __future__ import annotations

import asyncio

from ray_multicluster_scheduler.ray_client.http2 import frames
from ray_multicluster_scheduler.ray_client.http2.frames import (
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    LARGEST_FRAME,
    LARGEST_WINDOW,
    PROTOCOL_ERROR,
)
from ray_multicluster_scheduler.ray_client.http2.header_blocks import HeaderBlock, HeaderBlocks
from ray_multicluster_scheduler.ray_client.http2.headers import HeaderDecoder, Headers
from ray_multicluster_scheduler.ray_client.http2.http2_errors import ProtocolError
from ray_multicluster_scheduler.ray_client.http2.http2_stream import Stream
from ray_multicluster_scheduler.ray_client.http2.incoming import FrameReader
from ray_multicluster_scheduler.ray_client.http2.outgoing import Outgoing, Turn
from ray_multicluster_scheduler.ray_client.http2.relay_limits import RelayLimits
from ray_multicluster_scheduler.ray_client.http2.work_limit import WorkLimit

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


class ControlFrames(FrameReader[Stream]):
    """The state of a connection that the peer's frames change."""

    def __init__(self, limits: RelayLimits, turn: Turn, *, is_server: bool) -> None:
        super().__init__(most_frame=limits.frame_bytes, most_control=limits.header_bytes + HEADERS_EXTRA)
        self.limits = limits
        self.turn = turn
        self.is_server = is_server
        self.out = Outgoing(turn, limits, self._flooded)
        self.streams: dict[int, Stream] = {}
        #: The newest stream of the peer (server).
        self.last_id = 0
        #: The peer takes no further streams.
        self.peer_going = False
        self.most_streams = LARGEST_WINDOW
        #: What came, what may come, and what is to be allowed again.
        self.received = 0
        strangers = limits.strangers if is_server else None
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

    # -- what the connection does with it

    def is_known(self, stream_id: int) -> bool:
        """Tell whether a stream of this id exists or has existed."""
        raise NotImplementedError

    def request(self, stream_id: int, headers: Headers, *, ends: bool) -> None:
        """Begin a call of the peer (server)."""
        raise NotImplementedError

    def close_if_done(self) -> None:
        """Close a connection that takes no streams and has none."""
        raise NotImplementedError

    def fail(self, code: int, reason: str) -> None:
        """Say why, and end the connection."""
        raise NotImplementedError

    def greeted(self) -> None:
        """The peer has sent its settings."""
        raise NotImplementedError

    def set_timer(self) -> None:
        """Wait for the rest of something, but not for ever."""
        raise NotImplementedError

    def clear_timer(self) -> None:
        """It has come."""
        raise NotImplementedError

    # --

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
