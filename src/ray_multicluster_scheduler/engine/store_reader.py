"""Reads what others wrote: new jobs, stop requests, jobs that must end, drained clusters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from ray_multicluster_scheduler.core.events import (
    DrainsRead,
    Event,
    JobsAccepted,
    JobsBlocked,
    JobsRead,
    StopsRequested,
)
from ray_multicluster_scheduler.core.instructions import ReadJobs
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState

#: Jobs that are read at once: a queue of a million must not be in memory as a whole.
PAGE = 5_000
#: Jobs, and what each still waits for.
_Page = tuple[tuple[Job, tuple[str, ...]], ...]


class StoreReader:
    """Others only add jobs, with larger numbers than all before, and ask for stops. `hear` gets events."""

    def __init__(self, context: EngineContext, hear: Callable[[Event], None]) -> None:
        self._context = context
        self._hear = hear
        self._last_seq = 0

    async def read(self) -> None:
        """Read all that is new."""
        context, store = self._context, self._context.store
        self._hear(StopsRequested(jobs=await context.offload(store.stopping)))
        async for page in self._pages(after=self._last_seq):
            await self._read_drains()  # before the jobs: a cluster may be drained because of them
            self._hear(JobsAccepted(jobs=page))
            self._last_seq = page[-1][0].seq
        blocked = await context.offload(store.blocked, now=context.clock.now())
        if blocked:
            self._hear(JobsBlocked(jobs=blocked))
        await self._read_drains()

    async def read_jobs(self, wanted: ReadJobs) -> None:
        """Read whole jobs; those that wait no longer are left out."""
        context = self._context
        if wanted.placements:
            context.crash_point("place:decided")
        jobs = await context.offload(context.store.get_many, wanted.submission_ids)
        if wanted.placements:
            await self._read_drains()  # once `drain` has returned, nothing more is placed there
        waiting = {each: job for each, job in jobs.items() if job.state is JobState.QUEUED}
        self._hear(JobsRead(asked=wanted, jobs=waiting))

    async def _read_drains(self) -> None:
        self._hear(DrainsRead(drains=await self._context.offload(self._context.store.drained)))

    async def whole_queue(self) -> AsyncIterator[Job]:
        """Read all waiting jobs again, as they are in the store."""
        async for page in self._pages(after=0):
            for job, _ in page:
                yield job

    async def _pages(self, *, after: int) -> AsyncIterator[_Page]:
        context = self._context
        while page := await context.offload(context.store.arrivals, after=after, limit=PAGE):
            yield page
            if len(page) < PAGE:
                return
            after = page[-1][0].seq
