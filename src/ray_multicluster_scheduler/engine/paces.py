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

    def moved(self, jobs: Sequence[Job]) -> None:
        """Take note of moves."""
        now = self._clock.monotonic()
        for job in jobs:
            for name, starting in self._starting.items():
                if job.state in _STARTING and job.cluster == name:
                    starting.setdefault(job.submission_id, now)
                elif job.submission_id in starting:
                    if job.state in _STARTED:
                        took_s, count = now - starting[job.submission_id], len(starting)
                        self._paces[name] = after_start(self._paces[name], took_s, starting=count)
                    del starting[job.submission_id]

    def limits(self) -> dict[str, int]:
        """Return how many jobs may be between placement and their driver's start, by cluster."""
        return {name: pace.starts for name, pace in self._paces.items()}
