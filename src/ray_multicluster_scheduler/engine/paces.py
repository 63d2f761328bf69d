"""How fast each cluster has started jobs in this leadership, and how many it may be starting at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ray_multicluster_scheduler.core.flow.start_limit import Pace, after_start, first_pace
from ray_multicluster_scheduler.model.decision import ClusterView, Placement
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.ports import Clock

_STARTING = frozenset({JobState.PLACED, JobState.SUBMITTED})
#: The program ran; an attempt that never did says nothing about how fast the cluster is.
_STARTED = frozenset({JobState.RUNNING, JobState.SUCCEEDED})


@dataclass(frozen=True, slots=True)
class _Start:
    """One job on its way: since when, and whether it was of those that used the limit up."""

    since: float
    full: bool


class Paces:
    """Watches jobs on their way from placement to their start."""

    def __init__(self, clusters: Iterable[str], clock: Clock, *, most: int) -> None:
        self._clock = clock
        self._paces = {name: first_pace(most) for name in clusters}
        #: By cluster: jobs on their way.
        self._starting: dict[str, dict[str, _Start]] = {name: {} for name in self._paces}
        self._cluster_of: dict[str, str] = {}
        #: Clusters that were given all that they may start, in the last pass.
        self._used_up: frozenset[str] = frozenset()

    def of(self, cluster: str) -> Pace:
        """Return how many jobs may be between placement and their driver's start, and how long that takes."""
        return self._paces[cluster]

    def planned(self, decided: Iterable[Placement], views: Iterable[ClusterView]) -> None:
        """Take note of what a pass is about to place: the limit may be what kept it from more."""
        given = Counter(placement.cluster for placement in decided)
        allowed = {view.spec.name: view.allowance for view in views if view.allowance is not None}
        self._used_up = frozenset(name for name, most in allowed.items() if given[name] >= most)

    def moved(self, jobs: Sequence[Job]) -> None:
        """Take note of moves. Those that one look has found were all starting until then."""
        now = self._clock.monotonic()
        starting = {name: len(here) for name, here in self._starting.items()}
        for job in jobs:
            before = self._cluster_of.get(job.submission_id)
            starts_on = job.cluster if job.state in _STARTING else None
            if before is not None and before != starts_on:
                self._arrived(before, job, now, starting=starting[before])
            if starts_on in self._starting and before != starts_on:
                self._cluster_of[job.submission_id] = starts_on
                self._starting[starts_on][job.submission_id] = _Start(now, starts_on in self._used_up)

    def _arrived(self, cluster: str, job: Job, now: float, *, starting: int) -> None:
        """Count off a job that is no longer on its way to a cluster, and learn from it if it started."""
        start = self._starting[cluster].pop(job.submission_id)
        del self._cluster_of[job.submission_id]
        if job.state in _STARTED:
            took_s, pace = now - start.since, self._paces[cluster]
            self._paces[cluster] = after_start(pace, took_s, starting=starting, full=start.full)
