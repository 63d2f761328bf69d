"""Cuts what a peer sends into frames."""

from __future__ import annotations

from typing import Generic, TypeVar

from ray_multicluster_scheduler.ray_client.http2.frames import (
    DATA,
    DEFAULT_FRAME,
    END_STREAM,
    FRAME_SIZE_ERROR,
    HEADER_BYTES,
    LARGEST_WINDOW,
    PADDED,
    PROTOCOL_ERROR,
    Chunk,
    unpack_header,
)
from ray_multicluster_scheduler.ray_client.http2.http2_errors import ProtocolError

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
