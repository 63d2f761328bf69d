"""Reservations for starved jobs: on which cluster, from when, and which part other jobs may use.

Small jobs can overtake a large one for ever, because enough room for it is never free at once. So the oldest
job that has waited longer than `starvation_after_s` goes before the turns of all users. If no cluster has
room for it, one cluster keeps the resources that become free.

The end of a job is unknown, so a live job is expected to run as long again as it has run. Room is kept where
it is expected first, and only if that is within a part (`reserve_within`) of the time the job has waited:
idle resources delay other jobs. The others may use the resources that will be left when the job starts.

The choice is made again in each pass, without stored state. To make it stable, a job that has overtaken this
one is expected to run twice (`OVERTAKER_RUNS`) as long as this one is overdue. The cluster that keeps room
gets no such job and stays the best choice. Among clusters that are full of such jobs the name decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ray_multicluster_scheduler.core.placement.capacity import Room
from ray_multicluster_scheduler.core.placement.checks import GOES_BY, objection, passing_checks
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.decision import Holding, QueuedJob
from ray_multicluster_scheduler.model.resources import Resources, plus, shortfall

#: Jobs that have overtaken a starved job are expected to run for this factor times its overdue time.
OVERTAKER_RUNS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRoom:
    """When a job is expected to fit on a cluster."""

    room: Room
    after_s: float
    #: The run time so far of the oldest job that must end first.
    oldest_s: float
    #: The resources that become free until then.
    coming: Resources


def has_waited_too_long(waiting_since: float, *, now: float, rules: PlanRules) -> bool:
    """Tell whether a job is starved, so that it goes before the turns of all users."""
    return now - waiting_since > rules.starvation_after_s


def expected_rooms(
    job: QueuedJob, rooms: Iterable[Room], *, now: float, rules: PlanRules
) -> tuple[ExpectedRoom, ...]:
    """Return the clusters on which a job will fit after some of our own jobs have ended.

    Resources that other programs use may never become free.
    """
    passing = passing_checks()
    expected = []
    for room in rooms:
        refusal = objection(job, room, rules, passing)
        in_our_way = refusal is not None and refusal.cause in GOES_BY
        if in_our_way and not shortfall(job.claim, plus(room.free, room.ours)):
            expected.append(_expected(job, room, now=now, rules=rules))
    return tuple(expected)


def reserve(job: QueuedJob, expected: Sequence[ExpectedRoom], *, now: float, rules: PlanRules) -> Room | None:
    """Keep room for a job on one of these clusters and return it; None if that would be too early."""
    chosen = min(expected, key=lambda each: (each.after_s, each.room.name))
    if chosen.oldest_s > rules.reserve_within * (now - job.waiting_since):
        return None
    chosen.room.keep_for(job, coming=chosen.coming)
    return chosen.room


def _expected(job: QueuedJob, room: Room, *, now: float, rules: PlanRules) -> ExpectedRoom:
    """Assume that the live jobs of a cluster end one after the other, until a job fits."""
    overdue_since = job.waiting_since + rules.starvation_after_s

    def left_s(holding: Holding) -> float:
        overtook = holding.since > overdue_since
        return max(now - holding.since, OVERTAKER_RUNS * (now - overdue_since) if overtook else 0.0)

    new = [Holding(given, now) for given in room.given]
    coming: Resources = {}
    after_s, oldest_s = 0.0, 0.0
    slots = room.slots if job.needs_driver_slot else 1
    for holding in sorted([*new, *room.view.holdings], key=left_s):
        if slots > 0 and not shortfall(job.claim, plus(room.free, coming)):
            break
        coming, slots = plus(coming, holding.claim), slots + 1
        after_s, oldest_s = left_s(holding), max(oldest_s, now - holding.since)
    if slots <= 0 or shortfall(job.claim, plus(room.free, coming)):
        after_s = oldest_s = math.inf
    return ExpectedRoom(room=room, after_s=after_s, oldest_s=oldest_s, coming=coming)
