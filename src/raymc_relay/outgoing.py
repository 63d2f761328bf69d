"""What a connection sends: frames gathered for one write, the peer's windows, and the streams that wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol
from weakref import WeakKeyDictionary

from raymc_relay import frames
from raymc_relay.frames import Chunk, pack_header
from raymc_relay.headers import TABLE_OFF
from raymc_relay.limits import RelayLimits

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


# Bytes that wait, in order.


#: Smaller pieces are put together, so that a peer that sends single bytes takes no more memory than others.
SMALL = 4_096


class ByteQueue:
    """A queue of bytes that copies large pieces neither in nor out."""

    __slots__ = ("_chunks", "_tail", "size")

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        #: The last chunk, if small pieces can still be added to it.
        self._tail: bytearray | None = None
        self.size = 0

    def push(self, chunk: Chunk) -> None:
        """Add bytes at the end."""
        size = len(chunk)
        self.size += size
        if size < SMALL:
            if self._tail is None or len(self._tail) >= SMALL:
                self._tail = bytearray()
                self._chunks.append(self._tail)
            self._tail += chunk
            return
        self._tail = None
        if isinstance(chunk, memoryview) and isinstance(chunk.obj, bytes) and 2 * size < len(chunk.obj):
            chunk = bytes(chunk)  # a small part must not keep all that was received with it
        self._chunks.append(chunk)

    def take(self, most: int) -> Chunk:
        """Remove and return the first bytes, at least one and at most `most`; the queue is not empty."""
        chunk = self._chunks[0]
        if chunk is self._tail:
            chunk, self._tail = bytes(chunk), None  # nobody adds to it any more
        if len(chunk) <= most:
            self._chunks.popleft()
        else:
            view = memoryview(chunk)
            chunk, self._chunks[0] = view[:most], view[most:]
        self.size -= len(chunk)
        return chunk

    def clear(self) -> int:
        """Drop everything and return how many bytes that were."""
        dropped, self.size = self.size, 0
        self._chunks.clear()
        self._tail = None
        return dropped
