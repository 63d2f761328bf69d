"""How fast each cluster has started jobs in this leadership, and how many it may be starting at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.policy.pace import after_start, first_pace

_STARTING = frozenset({JobState.PLACED, JobState.SUBMITTED})
#: The program ran; an attempt that never did says nothing about how fast the cluster is.
_STARTED = frozenset({JobState.RUNNING, JobState.SUCCEEDED})


@dataclass(frozen=True, slots=True)
class _Start:
    """One job on its way: since when, and whether the limit was used up when it set out."""

    since: float
    full: bool


class Paces:
    """Watches jobs on their way from placement to their start."""

    def __init__(self, context: EngineContext) -> None:
        most = context.settings.max_starts_in_flight
        self._clock = context.clock
        self._paces = {spec.name: first_pace(most) for spec in context.config.clusters}
        #: By cluster: jobs on their way.
        self._starting: dict[str, dict[str, _Start]] = {name: {} for name in self._paces}
        self._cluster_of: dict[str, str] = {}

    def moved(self, jobs: Sequence[Job]) -> None:
        """Take note of moves. Those that one look has found were all starting until then."""
        now = self._clock.monotonic()
        before = {name: len(starting) for name, starting in self._starting.items()}
        full = self._full()
        setting_out = []
        for job in jobs:
            cluster = self._cluster_of.get(job.submission_id)
            starts_on = job.cluster if job.state in _STARTING else None
            if cluster is not None and cluster != starts_on:
                self._arrived(cluster, job, now, starting=before[cluster], full=full[cluster])
            if starts_on in self._starting and cluster != starts_on:
                self._cluster_of[job.submission_id] = starts_on
                self._starting[starts_on][job.submission_id] = _Start(now, full=False)
                setting_out.append(job.submission_id)
        self._note_full(setting_out, now)

    def limits(self) -> dict[str, int]:
        """Return how many jobs may be between placement and their driver's start, by cluster."""
        return {name: pace.starts for name, pace in self._paces.items()}

    def _full(self) -> dict[str, bool]:
        """Tell of which clusters the limit is used up now."""
        return {name: len(here) >= self._paces[name].starts for name, here in self._starting.items()}

    def _note_full(self, setting_out: Sequence[str], now: float) -> None:
        full = self._full()
        for submission_id in setting_out:
            cluster = self._cluster_of[submission_id]
            if full[cluster]:
                self._starting[cluster][submission_id] = _Start(now, full=True)

    def _arrived(self, cluster: str, job: Job, now: float, *, starting: int, full: bool) -> None:
        """Count off a job that is no longer on its way to a cluster, and learn from it if it started."""
        start = self._starting[cluster].pop(job.submission_id)
        del self._cluster_of[job.submission_id]
        if job.state in _STARTED:
            self._paces[cluster] = after_start(
                self._paces[cluster], now - start.since, starting=starting, full=full or start.full
            )
