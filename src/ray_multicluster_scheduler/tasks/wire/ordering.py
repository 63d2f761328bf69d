"""The order of requests for an actor: its creation, the calls of each caller in order, its release.

Ray starts the calls of a handle in the order in which they were made. But the bridge is an async actor, and
Ray delivers calls to async actors in any order. So a call may arrive before the creation of its actor, and
the release before the last call. Calls carry numbers, and each request waits here for the earlier ones.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext

from ray.exceptions import RayActorError

from ray_multicluster_scheduler.asyncio_tools import wait_for

#: A release does not wait longer for a missing call: it was cancelled before it arrived.
LATE_S = 30.0
#: Later calls do not wait longer for a missing call.
GAP_S = 10.0


class CallerOrder:
    """The order of the calls of one caller, that is, of one copy of a handle."""

    def __init__(self, gap_s: float = GAP_S) -> None:
        self._gap_s = gap_s
        self._next = 0
        #: Calls that have arrived and are not sent.
        self._arrived: dict[int, asyncio.Event] = {}
        #: Calls after the next one that were cancelled before their turn.
        self._passed: set[int] = set()

    @asynccontextmanager
    async def in_order(self, number: int) -> AsyncIterator[None]:
        """Wait until all earlier calls have left this context."""
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
        """Wait for a change; skip the next call if it does not arrive in time."""
        mine.clear()
        woken = await wait_for(mine, None if self._next in self._arrived else self._gap_s)
        if not woken and self._next not in self._arrived:
            self._next = min(self._arrived)
            self._wake_next()

    def _wake_next(self) -> None:
        """Wake the next call; if it has not arrived, wake all, which then wait for it for `gap_s`."""
        while self._next in self._passed:
            self._next += 1
        self._passed = {number for number in self._passed if number > self._next}
        next_one = self._arrived.get(self._next)
        for each in [next_one] if next_one is not None else self._arrived.values():
            each.set()


class ActorOrder:
    """The order of the requests for one actor."""

    def __init__(self, late_s: float = LATE_S) -> None:
        self._late_s = late_s
        self._created = asyncio.Event()
        self._problem: BaseException | None = None
        self._callers: defaultdict[str, CallerOrder] = defaultdict(CallerOrder)
        self._arrived = 0
        self._departed = 0
        self._changed = asyncio.Event()

    @contextmanager
    def creation(self) -> Iterator[None]:
        """Delay calls until the creation is sent; if that fails, they fail too."""
        try:
            yield
        except BaseException as problem:
            self._problem = problem
            raise
        finally:
            self._created.set()

    async def wait_until_created(self) -> None:
        """Wait until the creation is sent or has failed."""
        await self._created.wait()

    @asynccontextmanager
    async def call(self, position: tuple[str, int] | None) -> AsyncIterator[None]:
        """Wait until a call may be sent; `position` is caller and number, None if unordered."""
        self._arrived += 1
        try:
            await self.wait_until_created()
            if self._problem is not None:
                raise RayActorError(error_msg=f"the actor could not be created: {self._problem!r}")
            async with self._callers[position[0]].in_order(position[1]) if position else nullcontext():
                yield
        finally:
            self._departed += 1
            self._changed.set()

    async def all_sent(self, calls: int) -> bool:
        """Wait until this many calls were sent or have failed; False if some never arrived."""
        await self.wait_until_created()
        while self._departed < calls:
            self._changed.clear()
            late_s = self._late_s if self._departed == self._arrived else None
            if not await wait_for(self._changed, late_s) and self._departed == self._arrived:
                return False
        return True
