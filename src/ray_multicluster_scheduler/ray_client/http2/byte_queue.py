"""Bytes that wait, in order."""

from __future__ import annotations

from collections import deque

from ray_multicluster_scheduler.ray_client.http2.frames import Chunk

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
