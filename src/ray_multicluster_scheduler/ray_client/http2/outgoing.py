"""What a connection sends: frames gathered for one write, the peer's windows, and the streams that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol
from weakref import WeakKeyDictionary

from ray_multicluster_scheduler.ray_client.http2 import frames
from ray_multicluster_scheduler.ray_client.http2.frames import Chunk, pack_header
from ray_multicluster_scheduler.ray_client.http2.headers import TABLE_OFF
from ray_multicluster_scheduler.ray_client.http2.relay_limits import RelayLimits

#: What one stream sends before the next one has its turn, if several wait.
SHARE_BYTES = 64 * 1024
#: What is given to the socket at once, if streams have waited.
WRITE_BYTES = 256 * 1024


class Turn:
    """The connections of one event loop with something to write: each writes once per received buffer."""

    def __init__(self) -> None:
        self._waiting: list[Outgoing] = []
        #: Something was received, and `flush` will be called after all of it.
        self.receiving = False

    def add(self, outgoing: Outgoing) -> None:
        """Let a connection write soon."""
        if not self._waiting and not self.receiving:
            asyncio.get_running_loop().call_soon(self.flush)
        self._waiting.append(outgoing)

    def flush(self) -> None:
        """Let all connections write."""
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            for outgoing in waiting:
                outgoing.flush()


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, Turn] = WeakKeyDictionary()


def turn_of(loop: asyncio.AbstractEventLoop) -> Turn:
    """Return what the connections of an event loop share."""
    return _turns.setdefault(loop, Turn())


class Sender(Protocol):
    """A stream that waits for the peer's window or for the socket."""

    def pump(self, most: int) -> None:
        """Send at most this many bytes; wait again if there are more."""


class Outgoing:
    """The sending half of a connection."""

    def __init__(self, turn: Turn, limits: RelayLimits, flooded: Callable[[], None]) -> None:
        """`flooded` is called when the peer makes this side answer more than it reads."""
        self._turn = turn
        self._limits = limits
        self._flooded = flooded
        self._transport: asyncio.Transport | None = None
        self._chunks: list[Chunk] = []
        self._table_off_due = True
        self._unread_control = 0
        #: What the peer allows.
        self.window = frames.DEFAULT_WINDOW
        self.first_window = frames.DEFAULT_WINDOW
        self.most_frame = frames.DEFAULT_FRAME
        #: The socket has more than it should: what passes through waits, answers of this side do not.
        self.paused = False
        #: In the order of their turns.
        self.waiting: dict[Sender, None] = {}

    def attach(self, transport: asyncio.Transport) -> None:
        """Begin to write."""
        self._transport = transport
        most = self._limits.write_buffer_bytes
        transport.set_write_buffer_limits(high=most, low=most // 4)

    def detach(self) -> None:
        """Write nothing any more."""
        self._transport = None
        self._chunks = []
        self.waiting = {}

    def data(self, stream_id: int, payload: Chunk, flags: int) -> None:
        """Send DATA; the caller has looked at the windows."""
        chunks = self._chunks
        if not chunks:
            self._turn.add(self)
        chunks.append(pack_header(len(payload) << 8, flags, stream_id))
        chunks.append(payload)

    def control(self, frame: bytes) -> None:
        """Send a frame that no window holds back."""
        if self._transport is None:
            return
        if not self._chunks:
            self._turn.add(self)
        self._chunks.append(frame)
        if self.paused:
            self._unread_control += len(frame)
            if self._unread_control > self._limits.control_bytes:
                self._flooded()

    def headers(self, stream_id: int, block: bytes, *, end_stream: bool) -> None:
        """Send a header block."""
        if self._table_off_due:
            self._table_off_due = False
            block = TABLE_OFF + block
        self.control(frames.header_frames(stream_id, block, end_stream=end_stream, most=self.most_frame))

    def table_resized(self) -> None:
        """The peer wants another dynamic table; it must be told again that it will not be used."""
        self._table_off_due = True

    def flush(self) -> None:
        """Give everything that was gathered to the socket."""
        chunks, self._chunks = self._chunks, []
        if chunks and self._transport is not None:
            self._transport.write(b"".join(chunks))

    def pump(self) -> None:
        """Let the streams that wait send in turns, as far as the peer and the socket take it."""
        gathered = 0
        while self.waiting and self.window > 0 and not self.paused:
            stream = next(iter(self.waiting))
            del self.waiting[stream]
            before = self.window
            stream.pump(SHARE_BYTES)
            gathered += before - self.window
            if gathered >= WRITE_BYTES:
                gathered = 0
                self.flush()  # it may pause this loop

    def pause(self) -> None:
        """The socket has enough."""
        self.paused = True

    def resume(self) -> None:
        """The socket has room again."""
        self.paused = False
        self._unread_control = 0
        self.pump()

    def buffered(self) -> int:
        """Bytes that the socket has not taken yet."""
        waiting = sum(map(len, self._chunks))
        return waiting + (self._transport.get_write_buffer_size() if self._transport is not None else 0)
