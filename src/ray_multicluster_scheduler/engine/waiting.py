"""The leader's own copy of the queue, so that a pass reads nothing again that it knows.

Others only add jobs, which have larger numbers than all before, and ask for stops, which `JobStore.blocked`
finds. Everything else that happens to a waiting job, this leader does.
"""

from __future__ import annotations

from collections.abc import Sequence

from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.model.decision import QueuedJob
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.policy.backlog import Backlog, Line
from ray_multicluster_scheduler.policy.views import env_key, queued_job, unfit_clusters

#: Jobs that are read at once: a queue of a million must not be in memory as a whole.
PAGE = 5_000


class WaitingJobs:
    """All QUEUED jobs, in lines of those that clusters cannot tell apart."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._backlog = Backlog()
        self._last_seq = 0
        #: By environment: which clusters cannot have it, and why. The configuration stays as it is.
        self._unfit: dict[str, tuple[tuple[str, str], ...]] = {}

    def __len__(self) -> int:
        return len(self._backlog)

    async def refresh(self) -> bool:
        """Take in the jobs that were added since; tell whether there were any."""
        context, found = self._context, False
        while arrived := await context.offload(context.store.arrivals, after=self._last_seq, limit=PAGE):
            for job, needs in arrived:
                self._backlog.put(self._queued(job), not_before=job.not_before, needs=needs)
            self._last_seq = arrived[-1][0].seq
            found = True
            if len(arrived) < PAGE:
                break
        return found

    def moved(self, jobs: Sequence[Job]) -> None:
        """Take note of what this leader did with jobs."""
        for job in jobs:
            if job.state is JobState.QUEUED:
                self._backlog.put(self._queued(job), not_before=job.not_before)
                continue
            self._backlog.remove([job.submission_id])
            if job.state is JobState.SUCCEEDED:
                self._backlog.succeeded(job.submission_id)

    def forget(self, submission_ids: Sequence[str]) -> None:
        """Drop jobs that wait no more."""
        self._backlog.remove(submission_ids)

    def lines(self, *, now: float) -> tuple[Line, ...]:
        """Return those that may start now."""
        return self._backlog.lines(now=now)

    def _queued(self, job: Job) -> QueuedJob:
        key = env_key(job.spec)
        if key not in self._unfit:
            self._unfit[key] = unfit_clusters(job.spec, self._context.config.clusters)
        return queued_job(job, self._unfit[key])
