"""The leader removes old history, in steps so small and so far apart that nobody waits for it."""

from __future__ import annotations

import asyncio
import logging

from ray_multicluster_scheduler.engine.board import Board
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.service.retention import STEP_JOBS, keep_rules

log = logging.getLogger(__name__)

#: A command that leads for a moment should begin with its own work.
FIRST_AFTER_S = 3.0
EVERY_S = 600.0
#: Given back in one transaction.
STEP_BYTES = 4 * 2**20
#: Pauses between two steps: in proportion to what the step took, so that others have the store to themselves.
PAUSE_SHARE = 9.0
SHORTEST_PAUSE_S = 0.1


class Pruner:
    """Runs while this process leads."""

    def __init__(self, context: EngineContext, board: Board) -> None:
        self._context = context
        self._board = board
        self._keep = keep_rules(context.settings)

    async def run(self) -> None:
        """Remove what need not be kept, again and again; cancel to end."""
        await asyncio.sleep(FIRST_AFTER_S)
        while True:
            await self.prune()
            await asyncio.sleep(EVERY_S)

    async def prune(self) -> None:
        """Remove all that need not be kept now."""
        jobs = 0
        more = True
        while more:
            began_at = self._context.clock.monotonic()
            removed, more = await self._step()
            jobs += removed
            if more:
                took_s = self._context.clock.monotonic() - began_at
                await asyncio.sleep(max(SHORTEST_PAUSE_S, PAUSE_SHARE * took_s))
        if jobs:
            log.info("history pruned: %d job(s) removed", jobs)

    async def _step(self) -> tuple[int, bool]:
        """Remove something, or else give space back; return how many jobs went, and whether to go on."""
        context, store = self._context, self._context.store
        pruned = await context.offload(
            store.prune,
            self._keep,
            now=context.clock.now(),
            limit=STEP_JOBS,
            epoch=self._board.lease.epoch,
        )
        if pruned.more:
            return pruned.jobs, True
        return 0, await context.offload(store.shrink, most_bytes=STEP_BYTES)
