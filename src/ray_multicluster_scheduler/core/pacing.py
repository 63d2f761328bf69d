"""How fast: how many starts at once, how often a cluster is polled, and how fast lost jobs start anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ray_multicluster_scheduler.core.live_jobs import STARTING
from ray_multicluster_scheduler.model.decision import ClusterView, Placement
from ray_multicluster_scheduler.model.job import Job, Target
from ray_multicluster_scheduler.model.states import JobState

# How long is it until the next look at a cluster? Little while something is about to change.


#: A silent cluster is looked at after this many poll intervals; the watch calls when it answers again.
UNREACHABLE_POLLS = 5
#: A job is polled less often the longer it has been in its state: every sixteenth of that time, but not
#: more often than every eighth of the poll interval.
PATIENCE = 16
#: So few jobs are read one by one, which costs a cluster next to nothing; somebody may wait for each of them.
FEW = 4
EAGER = 8
#: Looks are work for the cluster too. One that is busy answers late, and is asked less often: no more than a
#: tenth of the time is spent on looking.
LOOKS_PART = 10


def look_interval_s(
    jobs: Collection[Job], *, now: float, look_took_s: float, poll_interval_s: float, probe_interval_s: float
) -> float:
    """Return how much time is between two looks at a cluster that has these jobs."""
    if not jobs:
        return probe_interval_s
    heard = [job for job in jobs if job.state is not JobState.UNREACHABLE]
    if not heard:
        return poll_interval_s * UNREACHABLE_POLLS
    moving = any(job.state is not JobState.RUNNING or job.target is Target.STOPPED for job in heard)
    longest_s = poll_interval_s / 2 if moving or len(heard) <= FEW else poll_interval_s
    age_s = now - max(job.changed_at for job in heard)
    shortest_s = max(poll_interval_s / EAGER, look_took_s * LOOKS_PART)
    return min(longest_s, max(shortest_s, age_s / PATIENCE))


# How fast the jobs of a dead cluster are started anew.
#
# When a cluster dies with hundreds of jobs, they are not thrown at the others all at once, but started one
# after another: if it was one of them that killed the cluster, the others are not killed with it.


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBucket:
    """A token bucket: `burst` starts at once, then `per_s`. `empty_until` is all that it remembers."""

    per_s: float
    burst: int
    empty_until: float = 0.0

    def wait_s(self, now: float) -> float:
        """Return how long the next start has to wait."""
        return max(0.0, max(self.empty_until, now) - now - (self.burst - 1) / self.per_s)

    def taken(self, now: float) -> TokenBucket:
        """Return the bucket after one token was taken, now or in advance."""
        later = max(self.empty_until, now) + 1.0 / self.per_s
        return TokenBucket(per_s=self.per_s, burst=self.burst, empty_until=later)


# How many jobs may a cluster be starting at once? As many as it starts without getting slower.
#
# Ray gets slower when it is flooded, and how much it takes depends on its machine. So the limit follows
# what is observed, as congestion control does: it grows while starts take about as long as the shortest
# ones lately, and shrinks by a part when they take much longer. It grows fast until a cluster first gets
# slower.


#: Where a cluster begins that nobody has seen start anything.
FIRST_LIMIT = 2
#: Slow start: added to the limit with each start until the cluster first gets slower. A full round of starts
#: grows the limit by half, because what a round costs shows only when it is over.
FIRST_STEP = 0.5
#: Up to this many times the shortest start is "about as long".
FAST = 1.25
#: From this many times the shortest start on, it is "much longer".
SLOW = 1.5
SHRINK = 0.7
#: The shortest start is forgotten by this part with each flight of further starts: clusters change.
FORGET = 0.002
#: Differences below this may come from us: from when we look, or from how busy this machine is.
NOISE_S = 1.0
#: The program ran; an attempt that never did says nothing about how fast the cluster is.
_STARTED = frozenset({JobState.RUNNING, JobState.SUCCEEDED})


def slow_from_s(shortest_s: float) -> float:
    """Return how long a start takes at least that is called slow."""
    return max(shortest_s * SLOW, shortest_s + NOISE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLimit:
    """How many jobs one cluster may be starting at once, and what that was learnt from."""

    limit: float
    most: int
    shortest_s: float | None = None
    #: No slow start was seen yet.
    unknown: bool = True
    #: Starts that were under way when the limit shrank: they say nothing new.
    old_news: int = 0

    @property
    def starts(self) -> int:
        """How many may be starting at once."""
        return int(self.limit)


def first_limit(most: int) -> StartLimit:
    """Return the limit of a cluster of which nothing is known; it never exceeds `most`."""
    return StartLimit(limit=float(min(FIRST_LIMIT, most)), most=most)


def after_start(known: StartLimit, took_s: float, *, starting: int, full: bool) -> StartLimit:
    """Learn from a start that took this long, while so many were starting, itself included.

    `full`: it was of those that used the limit up, so that a larger one might have let more jobs start.
    """
    shortest_s = took_s if known.shortest_s is None else known.shortest_s * (1 + FORGET / starting)
    shortest = min(shortest_s, took_s)
    seen = replace(known, shortest_s=shortest, old_news=max(0, known.old_news - 1))
    if took_s > slow_from_s(shortest):
        if known.old_news:
            return seen
        limit = max(1.0, known.limit * SHRINK)
        return replace(seen, limit=limit, unknown=False, old_news=starting - 1)
    if not full or took_s > max(shortest * FAST, shortest + NOISE_S / 2):
        return seen  # the limit was not what held it back, or it is about right
    step = FIRST_STEP if known.unknown else 1.0 / known.limit
    return replace(seen, limit=min(float(known.most), known.limit + step))


@dataclass(frozen=True, slots=True)
class _Start:
    """One job on its way: since when, and whether it was of those that used the limit up."""

    since: float
    full: bool


class StartLimits:
    """The limits of all clusters. Learns from jobs on their way from placement to their start."""

    def __init__(self, clusters: Iterable[str], *, most: int) -> None:
        self._limits = {name: first_limit(most) for name in clusters}
        #: By cluster: jobs on their way.
        self._starting: dict[str, dict[str, _Start]] = {name: {} for name in self._limits}
        self._cluster_of: dict[str, str] = {}
        #: Clusters that were given all that they may start, in the last pass.
        self._used_up: frozenset[str] = frozenset()

    def of(self, cluster: str) -> StartLimit:
        """Return how many jobs may be between placement and their driver's start, and how long that takes."""
        return self._limits[cluster]

    def planned(self, decided: Iterable[Placement], views: Iterable[ClusterView]) -> None:
        """Take note of what a pass is about to place: the limit may be what kept it from more."""
        given = Counter(placement.cluster for placement in decided)
        allowed = {view.spec.name: view.allowance for view in views if view.allowance is not None}
        self._used_up = frozenset(name for name, most in allowed.items() if given[name] >= most)

    def moved(self, jobs: Sequence[Job], *, now: float) -> None:
        """Take note of moves. Those that one look has found were all starting until then."""
        starting: dict[str, int] = {}
        for job in jobs:
            before = self._cluster_of.get(job.submission_id)
            starts_on = job.cluster if job.state in STARTING else None
            if before is not None and before != starts_on:
                together = starting.setdefault(before, len(self._starting[before]))
                self._arrived(before, job, now, starting=together)
            if starts_on in self._starting and before != starts_on:
                self._cluster_of[job.submission_id] = starts_on
                self._starting[starts_on][job.submission_id] = _Start(now, starts_on in self._used_up)

    def _arrived(self, cluster: str, job: Job, now: float, *, starting: int) -> None:
        """Count off a job that is no longer on its way to a cluster, and learn from it if it started."""
        start = self._starting[cluster].pop(job.submission_id)
        del self._cluster_of[job.submission_id]
        if job.state in _STARTED:
            took_s, known = now - start.since, self._limits[cluster]
            self._limits[cluster] = after_start(known, took_s, starting=starting, full=start.full)
