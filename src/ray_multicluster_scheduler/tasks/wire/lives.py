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

from ray_multicluster_scheduler.tasks.wire.turns import CallerOrder

#: A call that is this late was cancelled on its way: the release goes on without it.
LATE_S = 30.0


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
