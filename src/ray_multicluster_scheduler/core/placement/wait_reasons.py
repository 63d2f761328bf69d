"""Why jobs wait: for each reason how many, since when the oldest of them waits, and the reason in words.

Every cluster gives a job a reason. The job counts for the reason that will end first: if one cluster has no
room now and another is too small, it waits for room. So a reason that needs an operator (`TOO_LARGE`,
`ENVIRONMENT`, …) counts only jobs that will not start otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ray_multicluster_scheduler.core.placement.plan import decisions
from ray_multicluster_scheduler.core.placement.queue import JobQueue, line_name, queue_of
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.decision import (
    DEPENDENCIES,
    GOES_BY_FIRST,
    NO_CLUSTER,
    RETRY_DELAY,
    TURN,
    Cause,
    ClusterView,
    Placement,
    QueuedJob,
    Wait,
    Waiting,
)
from ray_multicluster_scheduler.model.resources import Resources

#: The sentence about a job names this many clusters at most: it is for a row of a table.
MOST_NAMED = 3
#: So many jobs are named as the first of their lines, shared out among all lines; of each line one at least.
MOST_FRONT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Jobs that get equal decisions."""

    #: The first of them that waits.
    sample: QueuedJob
    jobs: int
    #: The `seq`s of the first of them, in order.
    front: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """All jobs in the queue: jobs that may start, jobs that wait for others, jobs that wait for a time."""

    kinds: Sequence[Kind]
    needing: Sequence[QueuedJob]
    later: Sequence[QueuedJob]
    newest_seq: int = 0


def in_numbers(queue: JobQueue, *, now: float, most_front: int = MOST_FRONT) -> Queue:
    """Return a whole queue by kinds of jobs, as it is now."""
    kinds, lines = [], queue.lines(now=now)  # first: whose time has come is no longer aside
    each = max(1, most_front // max(1, len(lines)))
    for line in lines:
        first = next(line.in_turn())
        # The sample of a line may have left it, and a tie goes by the age of the first job that waits.
        sample = replace(
            line.sample,
            seq=first.seq,
            submission_id=first.submission_id,
            waiting_since=first.waiting_since,
        )
        front = tuple(waiter.seq for waiter in islice(line.in_turn(), each))
        kinds.append(Kind(sample=sample, jobs=len(line.waiters), front=front))
    needing, later = queue.aside()
    return Queue(kinds=kinds, needing=needing, later=later, newest_seq=queue.newest_seq)


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
    found: dict[str, Wait] = {}
    lined: dict[str, dict[str, Kind]] = {}
    told: dict[str, str] = {}
    lines = queue_of(kind.sample for kind in queue.kinds).lines(now=now)
    for decided in decisions(lines, views, now=now, rules=rules, in_use=in_use):
        kind = asked[decided.submission_id]
        reason, sentence = why(decided)
        _count(found, reason, kind.jobs, kind.sample.waiting_since)
        name = line_name(kind.sample)
        told[name] = sentence
        lined.setdefault(reason, {})[name] = kind
    _count_all(found, DEPENDENCIES, queue.needing)
    _count_all(found, RETRY_DELAY, queue.later)
    return tuple(
        replace(
            wait,
            lines={name: told[name] for name in kinds},
            fronts={name: kind.front for name, kind in kinds.items()},
            beyond={name: rest for name, kind in kinds.items() if (rest := kind.jobs - len(kind.front))},
            newest_seq=queue.newest_seq,
        )
        for wait, kinds in ((wait, lined.get(reason, {})) for reason, wait in found.items())
    )


def why(decided: Placement | Waiting) -> tuple[str, str]:
    """Return the reason why a job waits, and the same in a sentence that names the nearest clusters."""
    if isinstance(decided, Placement):
        return TURN, f"{decided.cluster} has room and takes it next"
    told = {name: each for name, each in decided.refusals.items() if each.cause is not Cause.EXCLUDED}
    refusals = sorted((told or decided.refusals).items(), key=lambda item: GOES_BY_FIRST.index(item[1].cause))
    if not refusals:
        return NO_CLUSTER, "no cluster is configured"
    only = "its only cluster " if len(told) == 1 < len(decided.refusals) else ""
    named = "; ".join(f"{only}{name}: {refusal.sentence}" for name, refusal in refusals[:MOST_NAMED])
    others = len(refusals) - MOST_NAMED
    more = f"; {others} more cannot take it either" if others > 0 else ""
    return refusals[0][1].cause.value, named + more


def _count_all(found: dict[str, Wait], reason: str, jobs: Iterable[QueuedJob]) -> None:
    ages = [job.waiting_since for job in jobs]
    if ages:
        _count(found, reason, len(ages), min(ages))


def _count(found: dict[str, Wait], reason: str, jobs: int, oldest: float) -> None:
    known = found.get(reason, Wait(reason=reason, jobs=0, oldest=oldest))
    found[reason] = Wait(reason=reason, jobs=known.jobs + jobs, oldest=min(known.oldest, oldest))
