"""The life of an actor as its bridge sees it: the creation first, the calls in their order, the release last.

The bridge is an async actor, and Ray delivers the calls to those in any order. So a call can come before the
creation of its actor, and the release before the last call: each waits here for what was made before it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext

from ray.exceptions import RayActorError

#: A call that is this late was cancelled on its way: the release goes on without it.
LATE_S = 30.0
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


class ActorOrder:
    """One actor on the other cluster."""

    def __init__(self, late_s: float = LATE_S) -> None:
        self._late_s = late_s
        self._created = asyncio.Event()
        self._problem: BaseException | None = None
        self._callers: defaultdict[str, CallerOrder] = defaultdict(CallerOrder)
        self._arrived = 0
        self._sent = 0
        self._changed = asyncio.Event()

    @contextmanager
    def creation(self) -> Iterator[None]:
        """Prepare the actor; calls wait until this is over, and fail if it fails."""
        try:
            yield
        except BaseException as problem:
            self._problem = problem
            raise
        finally:
            self._created.set()

    async def wait_until_created(self) -> None:
        """Wait until the actor is on its way."""
        await self._created.wait()

    @asynccontextmanager
    async def call(self, position: tuple[str, int] | None) -> AsyncIterator[None]:
        """Wait until a call may be sent; `position` is who calls and the number of the call, or None."""
        self._arrived += 1
        try:
            await self.wait_until_created()
            if self._problem is not None:
                raise RayActorError(error_msg=f"the actor could not be created: {self._problem!r}")
            async with self._callers[position[0]].in_order(position[1]) if position else nullcontext():
                yield
        finally:
            self._sent += 1
            self._changed.set()

    async def all_sent(self, calls: int) -> bool:
        """Wait until that many calls were sent; False when some of them never came."""
        await self.wait_until_created()
        while self._sent < calls:
            self._changed.clear()
            try:
                await asyncio.wait_for(
                    self._changed.wait(), self._late_s if self._sent == self._arrived else None
                )
            except asyncio.TimeoutError:
                if self._sent == self._arrived:
                    return False
        return True
