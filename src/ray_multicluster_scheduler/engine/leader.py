"""The engine: whoever holds the lease leads, and the leader runs the loops."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid

from ray_multicluster_scheduler.asyncio_tools import cancel_all, wait_for
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.engine.leadership import RENEWALS, ClockWasSet, Leadership
from ray_multicluster_scheduler.errors import LeaseLost, StoreBusy
from ray_multicluster_scheduler.model.job import Lease

log = logging.getLogger(__name__)

#: A process that waits for the lease looks this often whether its holder is still there: a killed holder
#: tells nobody.
LOOK_AT_LEADER_S = 1.0
#: Each commit of the leader wakes those that wait: not each of them is worth a look.
LEAST_BETWEEN_LOOKS_S = 0.1


def holder_name() -> str:
    """Return a name for the lease that tells people which process leads."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def is_holder(holder: str, pid: int) -> bool:
    """Tell whether a process of this machine has this name."""
    return holder.startswith(f"{socket.gethostname()}:{pid}:")


class Engine:
    """Runs until `stop` is called. Several engines on one store are safe: one leads, the others wait."""

    def __init__(self, context: EngineContext, *, holder: str) -> None:
        self._context = context
        self._holder = holder
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()

    def store_changed(self) -> None:
        """Take note that somebody else has written to the store; call it on the engine's loop."""
        self._changed.set()

    def stop(self) -> None:
        """Ask the engine to end; jobs go on, and another engine may take over at once."""
        self._stopping.set()
        self._changed.set()

    async def run(self) -> None:
        """Wait for the lease, lead while it holds, begin again.

        A store that is locked or full ends nothing but this turn: jobs go on, and so does the next turn.
        """
        ttl_s = self._context.settings.lease_ttl_s
        while not self._stopping.is_set():
            self._changed.clear()
            try:
                led = await self._turn(ttl_s)
            except StoreBusy as problem:
                log.error("the job store cannot be written now: %s", problem)  # noqa: TRY400
                led = False
            if not led:
                await wait_for(self._stopping, LEAST_BETWEEN_LOOKS_S)
                await wait_for(self._changed, min(LOOK_AT_LEADER_S, ttl_s / RENEWALS))

    async def _turn(self, ttl_s: float) -> bool:
        """Lead if the lease can be had; tell whether it could."""
        context = self._context
        # A look before the try: it keeps nobody from writing, and many may wait.
        leader = await context.offload(context.store.leader, now=context.clock.now())
        if leader is not None and leader.holder != self._holder:
            return False
        lease = await context.offload(
            context.store.acquire_lease, self._holder, ttl_s=ttl_s, now=context.clock.now()
        )
        if lease is not None:
            await self._lead(lease)
        return lease is not None

    async def _lead(self, lease: Lease) -> None:
        log.info("leading as %s (epoch %d)", lease.holder, lease.epoch)
        leadership = asyncio.create_task(Leadership(self._context, lease, self._changed).run())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({leadership, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if leadership.done():
                leadership.result()
        except LeaseLost:
            log.warning("another scheduler leads now, not %s (epoch %d)", lease.holder, lease.epoch)
        except ClockWasSet as problem:
            log.warning("the clock was set; leading anew (by %.1f s)", problem.by_s)
        finally:
            await cancel_all([leadership, stopping])
            await self._context.offload(self._context.store.release_lease, lease)
