"""The leader's own copy of the queue, so that a pass reads nothing again that it knows.

Others only add jobs, which have larger numbers than all before, and ask for stops, which `JobStore.blocked`
finds. Everything else that happens to a waiting job, this leader does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from ray_multicluster_scheduler.core.placement.inputs import QueuedJobs
from ray_multicluster_scheduler.core.placement.queue import JobQueue, Line
from ray_multicluster_scheduler.core.placement.wait_reasons import Kind, Queue
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState

#: Jobs that are read at once: a queue of a million must not be in memory as a whole.
PAGE = 5_000
#: Jobs, and what each still waits for.
_Page = tuple[tuple[Job, tuple[str, ...]], ...]


class WaitingJobs:
    """All QUEUED jobs, in lines of those that clusters cannot tell apart."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._queue = JobQueue()
        self._last_seq = 0
        self._queued = QueuedJobs(context.config.clusters)

    async def refresh(self) -> None:
        """Take in the jobs that were added since."""
        async for page in self._pages(after=self._last_seq):
            for job, needs in page:
                self._queue.put(self._queued.of(job), not_before=job.not_before, needs=needs)
            self._last_seq = page[-1][0].seq

    async def whole(self) -> AsyncIterator[Job]:
        """Read all of them from the store again: here only what decides on their places is kept."""
        async for page in self._pages(after=0):
            for job, _ in page:
                yield job

    def moved(self, jobs: Sequence[Job]) -> None:
        """Take note of what this leader did with jobs."""
        for job in jobs:
            if job.state is JobState.QUEUED:
                self._queue.put(self._queued.of(job), not_before=job.not_before)
                continue
            self._queue.remove([job.submission_id])
            if job.state is JobState.SUCCEEDED:
                self._queue.succeeded(job.submission_id)

    def forget(self, submission_ids: Sequence[str]) -> None:
        """Drop jobs that wait no more."""
        self._queue.remove(submission_ids)

    def lines(self, *, now: float) -> tuple[Line, ...]:
        """Return those that may start now."""
        return self._queue.lines(now=now)

    def queue(self, *, now: float) -> Queue:
        """Return the whole queue in numbers, as it is now."""
        needing, later = self._queue.aside()
        lines = [
            Kind(sample=line.sample, jobs=len(line.waiters), oldest=next(line.in_turn()).waiting_since)
            for line in self._queue.lines(now=now)
        ]
        return Queue(kinds=lines, needing=needing, later=later)

    async def _pages(self, *, after: int) -> AsyncIterator[_Page]:
        context = self._context
        while page := await context.offload(context.store.arrivals, after=after, limit=PAGE):
            yield page
            if len(page) < PAGE:
                return
            after = page[-1][0].seq
