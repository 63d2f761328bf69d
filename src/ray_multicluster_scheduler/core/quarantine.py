"""What a cluster is given where jobs die quickly.

A black hole is a cluster that kills jobs within seconds (a full disk, a missing mount). It always looks idle,
so it would be given one job after the other. Here it gets less (one job at a time), then nothing but a probe
job now and then, until one of these ends well or at least runs for a while. A cluster is not blamed for what
programs and their environments may have done themselves, unless some other cluster is better at it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ray_multicluster_scheduler.core.rules import QuarantineRules
from ray_multicluster_scheduler.model.execution import FailureKind
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState

#: How much a quick death says about the cluster: all, or half where it may be the job's own doing.
_WEIGHTS: Mapping[FailureKind, float] = {
    FailureKind.SUPERVISOR: 1.0,
    FailureKind.UNSCHEDULABLE: 1.0,
    FailureKind.REFUSED: 1.0,
    FailureKind.ENVIRONMENT: 0.5,
    FailureKind.USER: 0.5,
}
#: Doubling more often than this reaches every ceiling.
_MAX_DOUBLINGS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Streak:
    """Quick deaths in a row on one cluster."""

    deaths: int = 0
    weight: float = 0.0
    #: The part of the weight that is the cluster's fault for certain.
    certain: float = 0.0
    #: Probe jobs among them.
    probes: int = 0
    last_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How many jobs a cluster may be given now, and why so few."""

    jobs: int
    reason: str


def after_end(
    streak: Streak, job: Job, kind: FailureKind | None, *, now: float, rules: QuarantineRules
) -> Streak:
    """Count the end of an attempt; `kind` is why it ended badly, None when it ended well.

    `job` has the times of this attempt.
    """
    if kind is None:
        return Streak()
    weight = _WEIGHTS.get(kind)
    if weight is None:
        return streak  # the whole cluster is gone, or the program was stopped: no word about its health
    ended_at = now if job.ended_at is None else job.ended_at  # it may have been noticed much later
    if job.started_at is not None and ended_at - job.started_at >= rules.quick_s:
        return Streak()
    was_probe = streak.weight >= rules.nothing_from and (job.placed_at or 0.0) > streak.last_at
    return Streak(
        deaths=streak.deaths + 1,
        weight=streak.weight + weight,
        certain=streak.certain + (weight if weight == 1.0 else 0.0),
        probes=streak.probes + was_probe,
        last_at=now,
    )


def allowance(
    cluster: str, streaks: Mapping[str, Streak], live: Iterable[Job], *, now: float, rules: QuarantineRules
) -> Allowance | None:
    """Tell what a cluster may be given; None: as much as fits.

    `streaks` are those of all clusters that can take jobs, `live` the jobs that are on this one.
    """
    streak = streaks[cluster]
    if streak.weight < rules.less_from or not _blamed(cluster, streaks, rules):
        return None
    since = [job for job in live if (job.placed_at or 0.0) > streak.last_at]
    if any(_lives_on(job, now=now, rules=rules) for job in since):
        return None
    died = f"the last {streak.deaths} jobs that ended there died within {rules.quick_s:g} s"
    if streak.weight < rules.nothing_from:
        return Allowance(
            jobs=max(0, 1 - len(since)),
            reason=f"{died}; it is given one job at a time until one of them does better",
        )
    left_s = streak.last_at + _pause_s(streak, rules) - now
    wait = f"the next in {left_s:.0f} s" if left_s > 0 else "one at a time"
    return Allowance(
        jobs=0 if left_s > 0 else max(0, 1 - len(since)),
        reason=f"{died}; it gets only probe jobs until one does better ({wait})",
    )


def _blamed(cluster: str, streaks: Mapping[str, Streak], rules: QuarantineRules) -> bool:
    """Tell whether it is the cluster's fault: where jobs die everywhere alike, it is the jobs'."""
    if streaks[cluster].certain >= rules.less_from:
        return True
    return any(other.weight < rules.less_from for name, other in streaks.items() if name != cluster)


def _lives_on(job: Job, *, now: float, rules: QuarantineRules) -> bool:
    """Tell whether a job has outlived the time in which the others died."""
    running = job.state is JobState.RUNNING and job.started_at is not None
    return running and now - (job.started_at or now) >= rules.quick_s


def _pause_s(streak: Streak, rules: QuarantineRules) -> float:
    return min(rules.max_pause_s, rules.pause_s * 2.0 ** min(streak.probes, _MAX_DOUBLINGS))


class Quarantine:
    """What the leader remembers of jobs that died quickly. A new leader starts with an empty record."""

    def __init__(self, clusters: Iterable[str], rules: QuarantineRules) -> None:
        self._rules = rules
        self._streaks = {name: Streak() for name in clusters}

    def ended(self, job: Job, kind: FailureKind | None, *, now: float) -> None:
        """Take note of the end of an attempt; `kind` None: it ended well."""
        assert job.cluster is not None
        before = self._streaks[job.cluster]
        self._streaks[job.cluster] = after_end(before, job, kind, now=now, rules=self._rules)

    def suspects(self) -> tuple[str, ...]:
        """Return the clusters on which several jobs in a row have died quickly."""
        return tuple(name for name, streak in self._streaks.items() if streak.weight >= self._rules.less_from)

    def allowance(
        self, cluster: str, healthy: Iterable[str], live: Iterable[Job], *, now: float
    ) -> Allowance | None:
        """Tell what a cluster may be given, beside all that are healthy; None: as much as fits."""
        streaks = {name: self._streaks[name] for name in healthy}
        return allowance(cluster, streaks, live, now=now, rules=self._rules)
