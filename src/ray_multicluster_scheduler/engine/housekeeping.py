"""The leader removes old history and old packages, in steps so small and so rare that nobody waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from ray_multicluster_scheduler.asyncio_tools import together
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.engine.store_reader import StoreReader
from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.packages.runtime_env import package_names
from ray_multicluster_scheduler.packages.store import KEEP_S
from ray_multicluster_scheduler.service.prune import STEP_JOBS, keep_rules

log = logging.getLogger(__name__)

#: A command that leads for a moment should begin with its own work.
FIRST_AFTER_S = 3.0
EVERY_S = 600.0
#: Given back in one transaction.
STEP_BYTES = 4 * 2**20
#: Pauses between two steps: in proportion to what the step took, so that others have the store to themselves.
PAUSE_SHARE = 9.0
SHORTEST_PAUSE_S = 0.1
#: Between two looks at which packages are still needed.
COLLECT_PACKAGES_EVERY_S = 3600.0


class Housekeeper:
    """Runs while this process leads; `live` returns the jobs that are on clusters."""

    def __init__(
        self, context: EngineContext, reader: StoreReader, live: Callable[[], Iterable[Job]], *, epoch: int
    ) -> None:
        self._context = context
        self._reader = reader
        self._live = live
        self._epoch = epoch
        self._keep = keep_rules(context.settings)

    async def run(self) -> None:
        """Remove what need not be kept, again and again; cancel to end."""
        await asyncio.sleep(FIRST_AFTER_S)
        await together([self._prune_again_and_again(), self._collect_packages()])

    # -- history

    async def _prune_again_and_again(self) -> None:
        while True:
            await self.prune()
            await asyncio.sleep(EVERY_S)

    async def prune(self) -> None:
        """Remove all history that need not be kept now."""
        jobs = 0
        more = True
        while more:
            began_at = self._context.clock.monotonic()
            removed, more = await self._prune_some()
            jobs += removed
            if more:
                took_s = self._context.clock.monotonic() - began_at
                await asyncio.sleep(max(SHORTEST_PAUSE_S, PAUSE_SHARE * took_s))
        if jobs:
            log.info("history pruned: %d job(s) removed", jobs)

    async def _prune_some(self) -> tuple[int, bool]:
        """Remove something, or else give space back; return how many jobs went, and whether to go on."""
        context, store = self._context, self._context.store
        now = context.clock.now()
        pruned = await context.offload(store.prune, self._keep, now=now, limit=STEP_JOBS, epoch=self._epoch)
        if pruned.more:
            return pruned.jobs, True
        return 0, await context.offload(store.shrink, most_bytes=STEP_BYTES)

    # -- packages

    async def _collect_packages(self) -> None:
        """Remove packages that no open job has needed for a while.

        Not on the store's thread: whoever holds the lock of the packages must not keep the lease waiting.
        """
        packages = self._context.packages
        while True:
            try:
                if await asyncio.to_thread(packages.may_collect, for_s=COLLECT_PACKAGES_EVERY_S):
                    keep = await self._needed_packages()
                    await asyncio.to_thread(packages.collect, keep, older_than_s=KEEP_S)
            except (OSError, StoreError) as problem:
                log.warning("old packages cannot be removed now: %s", problem)
            await asyncio.sleep(COLLECT_PACKAGES_EVERY_S)

    async def _needed_packages(self) -> set[str]:
        """Return the packages of all open jobs, and those of the clusters."""
        needed = {name for spec in self._context.config.clusters for name in package_names(spec.runtime_env)}
        needed |= self._packages_of(self._live())
        async for job in self._reader.whole_queue():
            needed.update(package_names(job.spec.runtime_env))
        # Jobs that left the queue while it was read are on a cluster by now.
        return needed | self._packages_of(self._live())

    @staticmethod
    def _packages_of(jobs: Iterable[Job]) -> set[str]:
        return {name for job in jobs for name in package_names(job.spec.runtime_env)}
