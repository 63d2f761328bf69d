"""How fast each cluster has started jobs in this leadership, and how many it may be starting at once."""

from __future__ import annotations

from collections.abc import Sequence

from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.policy.pace import after_start, first_pace

_STARTING = frozenset({JobState.PLACED, JobState.SUBMITTED})
#: The program ran; an attempt that never did says nothing about how fast the cluster is.
_STARTED = frozenset({JobState.RUNNING, JobState.SUCCEEDED})


class Paces:
    """Watches jobs on their way from placement to their start."""

    def __init__(self, context: EngineContext) -> None:
        most = context.settings.max_starts_in_flight
        self._clock = context.clock
        self._paces = {spec.name: first_pace(most) for spec in context.config.clusters}
        #: By cluster: jobs on their way, and since when.
        self._starting: dict[str, dict[str, float]] = {name: {} for name in self._paces}
        self._cluster_of: dict[str, str] = {}

    def moved(self, jobs: Sequence[Job]) -> None:
        """Take note of moves."""
        now = self._clock.monotonic()
        for job in jobs:
            before = self._cluster_of.get(job.submission_id)
            starts_on = job.cluster if job.state in _STARTING else None
            if before is not None and before != starts_on:
                self._arrived(before, job, now)
            if starts_on in self._starting:
                self._cluster_of[job.submission_id] = starts_on
                self._starting[starts_on].setdefault(job.submission_id, now)

    def _arrived(self, cluster: str, job: Job, now: float) -> None:
        """Count off a job that is no longer on its way to a cluster, and learn from it if it started."""
        starting = self._starting[cluster]
        took_s, count = now - starting.pop(job.submission_id), len(starting) + 1
        del self._cluster_of[job.submission_id]
        if job.state in _STARTED:
            self._paces[cluster] = after_start(self._paces[cluster], took_s, starting=count)

    def limits(self) -> dict[str, int]:
        """Return how many jobs may be between placement and their driver's start, by cluster."""
        return {name: pace.starts for name, pace in self._paces.items()}
