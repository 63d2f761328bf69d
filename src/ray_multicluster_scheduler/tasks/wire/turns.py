"""The order of calls to one actor.

Ray starts the calls of a handle in the order in which they were made. The bridge must be an async actor, and
Ray delivers the calls to those in any order: so each call carries its number, and waits here for its turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

#: A call that is this late was cancelled on its way: the later ones go on without it.
GAP_S = 10.0


class CallerOrder:
    """Lets the calls of one handle through one after the other, by their numbers."""

    def __init__(self, gap_s: float = GAP_S) -> None:
        self._gap_s = gap_s
        self._next = 0
        #: Calls that have arrived and are not through.
        self._arrived: dict[int, asyncio.Event] = {}
        #: Calls that were cancelled before their turn.
        self._passed: set[int] = set()

    @asynccontextmanager
    async def in_order(self, number: int) -> AsyncIterator[None]:
        """Wait until all earlier calls are through; leaving lets the next one in."""
        mine = self._arrived[number] = asyncio.Event()
        try:
            while number > self._next:
                await self._wait(mine)
            yield
        finally:
            del self._arrived[number]
            self._passed.add(number)
            self._wake_next()

    async def _wait(self, mine: asyncio.Event) -> None:
        """Wait for something to change; a next one that does not even arrive is skipped."""
        mine.clear()
        try:
            await asyncio.wait_for(mine.wait(), None if self._next in self._arrived else self._gap_s)
        except asyncio.TimeoutError:
            if self._next not in self._arrived:
                self._next = min(self._arrived)
                self._wake_next()

    def _wake_next(self) -> None:
        """Wake the next call in order; one that has not arrived is waited for no longer than the gap."""
        while self._next in self._passed:
            self._next += 1
        self._passed = {number for number in self._passed if number > self._next}
        next_one = self._arrived.get(self._next)
        for each in [next_one] if next_one is not None else self._arrived.values():
            each.set()
