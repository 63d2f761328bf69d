"""Why the queue waits, in numbers: how many jobs for each reason, and since when the oldest of them.

A job hears a reason from every cluster. It counts for the one that will go by first: a job that one cluster
has no room for now, and that is too large for another, waits for room. So a reason that asks for an operator
(`TOO_LARGE`, `ENVIRONMENT`, …) counts only jobs that nothing else will help.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ray_multicluster_scheduler.core.placement.plan import decisions
from ray_multicluster_scheduler.core.placement.queue import queue_of
from ray_multicluster_scheduler.core.placement.rules import PlanRules
from ray_multicluster_scheduler.model.decision import Cause, ClusterView, Placement, QueuedJob, Waiting
from ray_multicluster_scheduler.model.resources import Resources

#: From what goes by first to what never does by itself.
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
#: A cluster would take it in the next pass.
TURN = "TURN"
#: It waits for other jobs, or for the time of its next attempt.
DEPENDENCIES = "DEPENDENCIES"
RETRY_DELAY = "RETRY_DELAY"
#: No cluster is configured.
NO_CLUSTER = "NO_CLUSTER"
#: All words that a reason can be.
REASONS = (TURN, DEPENDENCIES, RETRY_DELAY, NO_CLUSTER, *(cause.value for cause in GOES_BY_FIRST))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Jobs that clusters cannot tell apart."""

    sample: QueuedJob
    jobs: int
    oldest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """All jobs in the queue: those that may start, those that wait for others, those that wait for a time."""

    kinds: Sequence[Kind]
    needing: Sequence[QueuedJob]
    later: Sequence[QueuedJob]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """How many jobs wait for one reason, and since when the oldest of them."""

    reason: str
    jobs: int
    oldest: float


def waits(
    queue: Queue,
    views: Sequence[ClusterView],
    *,
    now: float,
    rules: PlanRules,
    in_use: Mapping[str, Resources],
) -> tuple[Wait, ...]:
    """Return every reason that some job waits for: what the next pass says to one job of each kind."""
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
