"""Pieces of a log on their way from the loop that reads a cluster to a thread or another loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

#: How many characters are buffered for a slow reader before reading from the cluster pauses.
MOST_CHARS = 2**20


class LogPipe:
    """Passes pieces on, and makes the writer wait while the buffer is full."""

    def __init__(self, hand: Callable[[str], None]) -> None:
        self._hand = hand
        self._lock = threading.Lock()
        self._untaken = 0
        #: The writer's loop and what wakes it, while it waits.
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def put(self, piece: str) -> None:
        """Hand a piece to the reader."""
        with self._lock:
            self._untaken += len(piece)
        self._hand(piece)

    async def room(self) -> None:
        """Return when the reader has taken enough for more to be put."""
        while True:
            with self._lock:
                if self._untaken < MOST_CHARS:
                    return
                taken = asyncio.Event()
                self._waiting = asyncio.get_running_loop(), taken
            await taken.wait()

    def taken(self, piece: str) -> None:
        """Note, in the reader's thread, that a piece was taken."""
        with self._lock:
            self._untaken -= len(piece)
            if self._waiting is None or self._untaken >= MOST_CHARS:
                return
            (loop, event), self._waiting = self._waiting, None
        with suppress(RuntimeError):  # the writer's loop was closed meanwhile
            loop.call_soon_threadsafe(event.set)
