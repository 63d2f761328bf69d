"""Jobs that can never start: no cluster is large enough, or none can set up the environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ray_multicluster_scheduler.core.placement.capacity import Room, open_rooms
from ray_multicluster_scheduler.core.placement.checks import (
    ENVIRONMENT_CHECKS,
    can_ever_hold,
    has_supported_version,
    is_allowed,
    objection,
)
from ray_multicluster_scheduler.core.placement.queue import Line
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.environment.ray_needs import ray_objection
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.decision import Cause, ClusterView, QueuedJob, Refusal
from ray_multicluster_scheduler.model.resources import Resources, show


def has_failed_everywhere(job: QueuedJob, rooms: Sequence[Room], rules: PlanRules) -> str | None:
    """Say why an environment cannot work on any cluster; None if one may still work.

    The evidence must come from the clusters: a failed setup, or an unsuitable version of Ray. A job that only
    the configuration excludes waits for a new configuration.
    """
    rooms = [room for room in rooms if _is_open_to(job, room.view)]
    if not any(_has_shown(job, room.view) for room in rooms):
        return None
    refusals = {room.name: _for_good(job, room, rules) for room in rooms}
    if not all(refusals.values()):
        return None
    return "; ".join(f"{name!r}: {refusal.sentence}" for name, refusal in refusals.items() if refusal)


def unworkable_lines(
    lines: Sequence[Line], views: Sequence[ClusterView], rules: PlanRules
) -> list[tuple[Line, str]]:
    """Return the lines of jobs whose environment has failed wherever it could be tried, each with the reason.

    The leader ends these jobs before it plans, so nobody else may count on them either.
    """
    is_cluster_picky = any(view.failing or view.ray_needs for view in views)
    asked = [line for line in lines if is_cluster_picky or line.sample.ray_needs]
    rooms = open_rooms(views) if asked else ()
    reasons = [(line, has_failed_everywhere(line.sample, rooms, rules)) for line in asked]
    return [(line, reason) for line, reason in reasons if reason is not None]


def _is_open_to(job: QueuedJob, view: ClusterView) -> bool:
    return is_allowed(job.only_cluster, job.only_tags, view.name, view.cluster_tags) is None


def _has_shown(job: QueuedJob, view: ClusterView) -> bool:
    objects = ray_objection(job.ray_needs, view.ray_needs, view.snapshot.ray_version) is not None
    return objects or job.env_key in view.failing


def _for_good(job: QueuedJob, room: Room, rules: PlanRules) -> Refusal | None:
    too_old = has_supported_version(room.view.ray_version, rules)
    if refusal := too_old or objection(job, room, rules, ENVIRONMENT_CHECKS):
        return refusal
    refusal = can_ever_hold(job, room, rules)
    healthy = room.view.snapshot.health is Health.HEALTHY  # the size of an unhealthy cluster is not reliable
    return refusal if healthy and refusal and refusal.cause is Cause.TOO_LARGE else None


def never_fits(claim: Resources, views: Sequence[ClusterView]) -> str | None:
    """Say why no cluster could ever hold a claim; None if one could or might.

    A cluster of unknown size might, and so might one that is drained or unhealthy now.
    """
    rooms = open_rooms(views)
    lacks = {room.name: room.beyond(claim) for room in rooms}
    if not all(lacks.values()):
        return None
    if not rooms:
        return f"needs {show(claim)}; no cluster is configured"
    nowhere = sorted(name for name in claim if all(name in lack for lack in lacks.values()))
    if not nowhere:
        has = "; ".join(f"{room.name!r} has {show(_only(room.capacity, claim))}" for room in rooms)
        return f"needs {show(claim)} on one cluster; {has}"
    return "; ".join(_largest(name, claim[name], rooms) for name in nowhere)


def _largest(resource: str, wanted: float, rooms: Sequence[Room]) -> str:
    largest = max(rooms, key=lambda room: room.capacity.get(resource, 0.0))
    if not largest.capacity.get(resource):
        known = {name for room in rooms for name, amount in room.capacity.items() if amount}
        meant = sorted(name for name in known if name.casefold() == resource.casefold())
        hint = f"; did you mean {meant[0]!r}?" if meant else ""
        return f"needs {show({resource: wanted})}; no cluster has any {resource}{hint}"
    return (
        f"needs {show({resource: wanted})}; the largest cluster is {largest.name!r} "
        f"with {show(_only(largest.capacity, (resource,)))}"
    )


def _only(amounts: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    return {name: amounts.get(name, 0.0) for name in names}
