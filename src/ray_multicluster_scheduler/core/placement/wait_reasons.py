"""Why jobs wait, in numbers: the count for each reason, and since when the oldest of them waits.

Every cluster gives a job a reason. The job counts for the reason that will end first: if one cluster has no
room now and another is too small, it waits for room. So a reason that needs an operator (`TOO_LARGE`,
`ENVIRONMENT`, …) counts only jobs that will not start otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ray_multicluster_scheduler.core.placement.plan import decisions
from ray_multicluster_scheduler.core.placement.plan_rules import PlanRules
from ray_multicluster_scheduler.core.placement.queue import JobQueue, queue_of
from ray_multicluster_scheduler.model.decision import Cause, ClusterView, Placement, QueuedJob, Waiting
from ray_multicluster_scheduler.model.resources import Resources

#: Ordered from the cause that ends first to those that never end by themselves.
GOES_BY_FIRST: tuple[Cause, ...] = (
    Cause.UNSEEN,
    Cause.PACED,
    Cause.NO_ROOM,
    Cause.DRIVER_CAP,
    Cause.RESERVED,
    Cause.THROTTLED,
    Cause.UNKNOWN_RESOURCES,
    Cause.UNHEALTHY,
    Cause.DRAINED,
    Cause.AVOIDED,
    Cause.ENVIRONMENT,
    Cause.VERSION,
    Cause.TOO_LARGE,
)
#: A cluster can take the job in the next pass.
TURN = "TURN"
#: The job waits for other jobs, or for the time of its next attempt.
DEPENDENCIES = "DEPENDENCIES"
RETRY_DELAY = "RETRY_DELAY"
#: No cluster is configured.
NO_CLUSTER = "NO_CLUSTER"
#: All possible reasons.
REASONS = (TURN, DEPENDENCIES, RETRY_DELAY, NO_CLUSTER, *(cause.value for cause in GOES_BY_FIRST))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Jobs that get equal decisions."""

    sample: QueuedJob
    jobs: int
    oldest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """All jobs in the queue: jobs that may start, jobs that wait for others, jobs that wait for a time."""

    kinds: Sequence[Kind]
    needing: Sequence[QueuedJob]
    later: Sequence[QueuedJob]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The number of jobs that wait for one reason, and since when the oldest of them waits."""

    reason: str
    jobs: int
    oldest: float


def in_numbers(queue: JobQueue, *, now: float) -> Queue:
    """Return a whole queue by kinds of jobs, as it is now."""
    kinds = [  # first: whose time has come is no longer aside
        Kind(sample=line.sample, jobs=len(line.waiters), oldest=next(line.in_turn()).waiting_since)
        for line in queue.lines(now=now)
    ]
    needing, later = queue.aside()
    return Queue(kinds=kinds, needing=needing, later=later)


def waits(
    queue: Queue,
    views: Sequence[ClusterView],
    *,
    now: float,
    rules: PlanRules,
    in_use: Mapping[str, Resources],
) -> tuple[Wait, ...]:
    """Return every reason with waiting jobs, from a pass over one job of each kind."""
    asked = {kind.sample.submission_id: kind for kind in queue.kinds}
    oldest = [replace(kind.sample, waiting_since=kind.oldest) for kind in queue.kinds]
    found: dict[str, Wait] = {}
    lines = queue_of(oldest).lines(now=now)
    for decided in decisions(lines, views, now=now, rules=rules, in_use=in_use):
        kind = asked[decided.submission_id]
        reason = TURN if isinstance(decided, Placement) else _first_to_go(decided)
        _count(found, reason, kind.jobs, kind.oldest)
    _count_all(found, DEPENDENCIES, queue.needing)
    _count_all(found, RETRY_DELAY, queue.later)
    return tuple(found.values())


def _first_to_go(waiting: Waiting) -> str:
    causes = {refusal.cause for refusal in waiting.refusals.values()}
    return next((cause.value for cause in GOES_BY_FIRST if cause in causes), NO_CLUSTER)


def _count_all(found: dict[str, Wait], reason: str, jobs: Iterable[QueuedJob]) -> None:
    ages = [job.waiting_since for job in jobs]
    if ages:
        _count(found, reason, len(ages), min(ages))


def _count(found: dict[str, Wait], reason: str, jobs: int, oldest: float) -> None:
    known = found.get(reason, Wait(reason=reason, jobs=0, oldest=oldest))
    found[reason] = Wait(reason=reason, jobs=known.jobs + jobs, oldest=min(known.oldest, oldest))
