"""Puts header blocks together: a HEADERS frame, and CONTINUATION frames if it is long."""

from __future__ import annotations

from typing import NamedTuple

from ray_multicluster_scheduler.ray_client.http2 import frames
from ray_multicluster_scheduler.ray_client.http2.http2_errors import ProtocolError

_EXTRA = frames.PADDED | frames.HAS_PRIORITY


class HeaderBlock(NamedTuple):
    """A whole block: whose it is, its bytes, and whether the stream ends with it."""

    stream_id: int
    block: bytes
    ends: bool


class HeaderBlocks:
    """The header block under way, if any, of one connection."""

    def __init__(self, *, most_bytes: int, most_frames: int) -> None:
        self._most_bytes = most_bytes
        self._most_frames = most_frames
        self._parts: list[bytes] = []
        self._stream_id = 0
        self._ends = False
        #: Only CONTINUATION of the same stream may follow.
        self.is_open = False

    def begin(self, flags: int, stream_id: int, payload: bytes) -> HeaderBlock | None:
        """Take HEADERS; return the block if it is whole."""
        fragment = _without_padding(flags, payload) if flags & _EXTRA else payload
        ends = bool(flags & frames.END_STREAM)
        if len(fragment) > self._most_bytes:
            raise ProtocolError(frames.ENHANCE_YOUR_CALM, "more headers than allowed")
        if flags & frames.END_HEADERS:
            return HeaderBlock(stream_id, fragment, ends)
        self._parts, self._stream_id, self._ends, self.is_open = [fragment], stream_id, ends, True
        return None

    def go_on(self, flags: int, stream_id: int, payload: bytes) -> HeaderBlock | None:
        """Take CONTINUATION; return the block if it is whole."""
        if not self.is_open or stream_id != self._stream_id:
            raise ProtocolError(frames.PROTOCOL_ERROR, "CONTINUATION of nothing")
        self._parts.append(payload)
        if len(self._parts) > self._most_frames + 1 or sum(map(len, self._parts)) > self._most_bytes:
            raise ProtocolError(frames.ENHANCE_YOUR_CALM, "more headers than allowed")
        if not flags & frames.END_HEADERS:
            return None
        block, self._parts, self.is_open = b"".join(self._parts), [], False
        return HeaderBlock(stream_id, block, self._ends)


def _without_padding(flags: int, payload: bytes) -> bytes:
    start, stop = 0, len(payload)
    if flags & frames.PADDED:
        if not payload:
            raise ProtocolError(frames.FRAME_SIZE_ERROR, "HEADERS without the length of their padding")
        start, stop = 1, stop - payload[0]
    if flags & frames.HAS_PRIORITY:
        start += 5
    if start > stop:
        raise ProtocolError(frames.PROTOCOL_ERROR, "more padding than its frame has bytes")
    return payload[start:stop]
