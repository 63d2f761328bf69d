"""Room for the job that has waited too long: on which cluster, from when, and what others may use of it.

Narrow jobs can overtake a wide one for ever, because room for it never comes free at once. So the oldest job
that has waited longer than `starvation_after_s` goes before the turns of all users. When no cluster has room
for it, one cluster keeps the room that comes free.

Nobody knows when jobs end. A live job is expected to run as long again as it has run. Room is kept where it
is expected soonest, and only once that is within a part (`reserve_within`) of the time the job has waited: an
empty cluster costs the others as long as it stays empty. The others may use what will be left when the job
starts. The choice is made anew in each pass and needs no memory. To be sure that it settles, a job that has
waited very long (`firm_after`) gets the cluster on which the fewest jobs have overtaken it, and those that
come later leave that cluster alone: the number there cannot grow, so the job starts when those have ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ray_multicluster_scheduler.core.placement.capacity import Room
from ray_multicluster_scheduler.core.placement.checks import GOES_BY, objection, passing_checks
from ray_multicluster_scheduler.core.placement.rules import PlanRules
from ray_multicluster_scheduler.model.decision import Holding, QueuedJob
from ray_multicluster_scheduler.model.resources import Resources, plus, shortfall


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRoom:
    """After how long a job is expected to fit on a cluster, and what comes free there until then."""

    room: Room
    after_s: float
    coming: Resources


def has_waited_too_long(waiting_since: float, *, now: float, rules: PlanRules) -> bool:
    """Tell whether a job goes before the turns of all users."""
    return now - waiting_since > rules.starvation_after_s


def expected_rooms(
    job: QueuedJob, rooms: Iterable[Room], *, now: float, rules: PlanRules
) -> tuple[ExpectedRoom, ...]:
    """Return where a job that fits nowhere now will fit: wherever only our own jobs are in its way.

    What others use may never come free.
    """
    passing = passing_checks()
    expected = []
    for room in rooms:
        refusal = objection(job, room, rules, passing)
        in_our_way = refusal is not None and refusal.cause in GOES_BY
        if in_our_way and not shortfall(job.claim, plus(room.free, room.ours)):
            expected.append(_expected(job.claim, room, now=now))
    return tuple(expected)


def reserve(job: QueuedJob, expected: Sequence[ExpectedRoom], *, now: float, rules: PlanRules) -> Room | None:
    """Keep room for a job on one of these clusters and return it; None: that would be too early."""
    firm_from = job.waiting_since + rules.firm_after * rules.starvation_after_s
    firm = now > firm_from
    overtaken = {each.room.name: _arrived(each.room, after=firm_from) if firm else 0 for each in expected}
    chosen = min(expected, key=lambda each: (overtaken[each.room.name], each.after_s, each.room.name))
    if not firm and chosen.after_s > rules.reserve_within * (now - job.waiting_since):
        return None
    chosen.room.keep_for(job, coming={} if firm else chosen.coming)
    return chosen.room


def _expected(claim: Resources, room: Room, *, now: float) -> ExpectedRoom:
    """Let the live jobs of a cluster end, the youngest first, until a claim fits."""
    new = [Holding(given, now) for given in room.given]
    youngest_first = sorted([*new, *room.view.holdings], key=lambda holding: -holding.since)
    coming: Resources = {}
    after_s, slots = 0.0, room.slots
    for holding in youngest_first:
        if slots > 0 and not shortfall(claim, plus(room.free, coming)):
            break
        coming, slots = plus(coming, holding.claim), slots + 1
        after_s = max(0.0, now - holding.since)
    fits = slots > 0 and not shortfall(claim, plus(room.free, coming))
    return ExpectedRoom(room=room, after_s=after_s if fits else math.inf, coming=coming)


def _arrived(room: Room, *, after: float) -> int:
    """Count the jobs that came to a cluster after a time."""
    return sum(holding.since > after for holding in room.view.holdings)
