"""The leader's view of the jobs that are on clusters now: read from the store, written through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.model.job import Job, Lease, Transition
from ray_multicluster_scheduler.model.states import LIVE, JobState
from ray_multicluster_scheduler.policy.views import env_key


class Board:
    """Live jobs by cluster. Only this leader moves jobs, so after a refresh the copy stays true.

    Others only add jobs to the queue and ask for stops; the store's bell says when, and `refresh` reads them.
    """

    def __init__(
        self, context: EngineContext, lease: Lease, *, moved: Callable[[Sequence[Job]], None]
    ) -> None:
        self._context = context
        self.lease = lease
        self._moved = moved
        self._live: dict[str, Job] = {}
        #: Environments that a driver has started with, by cluster and its incarnation.
        self._warm: dict[tuple[str, str | None], set[str]] = {}

    async def refresh(self) -> set[str]:
        """Read all live jobs anew; return the clusters of those that somebody else has changed."""
        jobs = await self._context.offload(self._context.store.live)
        before, self._live = self._live, {job.submission_id: job for job in jobs}
        return {job.cluster for job in jobs if job.cluster and before.get(job.submission_id) != job}

    def leads(self) -> bool:
        """Tell whether the lease still holds, as far as this process knows.

        A leader that was paused must not start anything before it has asked: its successor may have.
        """
        return self._context.clock.now() < self.lease.expires_at

    def get(self, submission_id: str) -> Job | None:
        """Return a live job as it is now, or None when it has left the clusters."""
        return self._live.get(submission_id)

    def on(self, cluster: str) -> tuple[Job, ...]:
        """Return the jobs that hold an attempt on a cluster."""
        return tuple(job for job in self._live.values() if job.cluster == cluster)

    def all(self) -> tuple[Job, ...]:
        """Return all live jobs."""
        return tuple(self._live.values())

    def warm(self) -> dict[str, frozenset[str]]:
        """Return the environments that are set up on each cluster, as far as this leader has seen."""
        sessions = {name: seen.session_name for name, seen in self._context.watch.snapshots().items()}
        return {name: frozenset(self._warm.get((name, session), ())) for name, session in sessions.items()}

    async def apply(self, transitions: Sequence[Transition]) -> tuple[Job, ...]:
        """Write moves and take over what was really moved. Raises `LeaseLost` when another one leads."""
        if not transitions:
            return ()
        context = self._context
        moved = await context.offload(
            context.store.apply, transitions, epoch=self.lease.epoch, now=context.clock.now()
        )
        for job in moved:
            self._take_over(job)
        self._moved(moved)
        return moved

    def _take_over(self, job: Job) -> None:
        if job.state in LIVE:
            self._live[job.submission_id] = job
        else:
            self._live.pop(job.submission_id, None)
        if job.state is JobState.RUNNING and job.cluster:
            self._warm.setdefault((job.cluster, job.session_name), set()).add(env_key(job.spec))
