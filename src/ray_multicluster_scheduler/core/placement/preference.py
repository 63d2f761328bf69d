"""Jobs that wait although a cluster could take them: before the first probe, or for a preferred cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ray_multicluster_scheduler.core.flow.start_limit import slow_from_s
from ray_multicluster_scheduler.core.placement.capacity import Room
from ray_multicluster_scheduler.core.placement.plan_rules import PlanRules
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot
from ray_multicluster_scheduler.model.decision import Cause, Refusal


def awaited(rooms: Iterable[Room]) -> tuple[str, ...]:
    """Return the clusters whose first probe must end before anything is placed."""
    return tuple(room.name for room in rooms if room.view.snapshot.awaited)


def after_first_look(unseen: Sequence[str]) -> Refusal:
    """Say why a job waits although a cluster could take it: a new leader probes all clusters first."""
    rest = f" and {len(unseen) - 1} more are" if len(unseen) > 1 else " is"
    sentence = f"it could take the job, but {unseen[0]!r}{rest} looked at first: two seconds at most"
    return Refusal(cause=Cause.UNSEEN, sentence=sentence)


def with_preferred(preferred: str) -> Refusal:
    """Say why a job waits although a cluster could take it: its preferred cluster is about to have room."""
    sentence = f"it could take the job, but the preferred cluster {preferred!r} can in a moment"
    return Refusal(cause=Cause.PACED, sentence=sentence)


def patience_s(snapshots: Iterable[ClusterSnapshot], rules: PlanRules) -> float:
    """Return the usual duration of a start on the fastest cluster."""
    starts = (rules.first_start_s if seen.start_s is None else seen.start_s for seen in snapshots)
    return slow_from_s(min(starts, default=0.0))


def is_worth_a_wait(room: Room, refusal: Refusal | None, *, now: float, patience_s: float) -> bool:
    """Tell whether a job should wait for its preferred cluster after this refusal.

    Only if the pace of starts is the one reason, and no longer than a start takes elsewhere. At most as many
    jobs wait as the cluster can start at once, and none if even its latest start is overdue.
    """
    if refusal is None or refusal.cause is not Cause.PACED:
        return False
    latest = now if room.placed else room.view.last_start_at
    on_time = latest is not None and 0 <= now - latest <= patience_s
    return on_time and room.waited_for < room.view.starting + (room.view.allowance or 0)
