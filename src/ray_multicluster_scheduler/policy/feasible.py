"""May this job go to this cluster now? Small checks, each of which objects with a reason or not at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, Health
from ray_multicluster_scheduler.model.decision import Cause, ClusterView, QueuedJob, Refusal
from ray_multicluster_scheduler.model.resources import Resources, shortfall, show
from ray_multicluster_scheduler.policy.ledger import Room, open_rooms
from ray_multicluster_scheduler.policy.pace import slow_from_s
from ray_multicluster_scheduler.policy.ray_needs import ray_objection
from ray_multicluster_scheduler.policy.rules import PlanRules

#: None: no objection. A check may look at what jobs of one shape have in common, never at the job's identity.
Check = Callable[[QueuedJob, Room, PlanRules], Refusal | None]


def is_healthy(_job: QueuedJob, room: Room, _rules: PlanRules) -> Refusal | None:
    """A cluster that was never probed is not healthy."""
    snapshot = room.view.snapshot
    if snapshot.health is Health.HEALTHY:
        return None
    if snapshot.health is Health.UNKNOWN:
        return Refusal(cause=Cause.UNSEEN, sentence="it has not been looked at yet")
    return Refusal(cause=Cause.UNHEALTHY, sentence=snapshot.problem or "it is not healthy")


def is_not_drained(_job: QueuedJob, room: Room, _rules: PlanRules) -> Refusal | None:
    """A drained cluster finishes what it has and gets nothing new."""
    if not room.view.drained:
        return None
    why = f": {room.view.drain_reason}" if room.view.drain_reason else ""
    return Refusal(cause=Cause.DRAINED, sentence=f"it is drained{why}")


def has_supported_version(_job: QueuedJob, room: Room, rules: PlanRules) -> Refusal | None:
    """A version that is unknown, or not written as Ray writes it, is no reason to refuse."""
    version = room.view.snapshot.ray_version
    found = re.match(r"(\d+)\.(\d+)", version or "")
    if found is None or (int(found[1]), int(found[2])) >= rules.min_ray_version:
        return None
    oldest = ".".join(map(str, rules.min_ray_version))
    return Refusal(cause=Cause.VERSION, sentence=f"it runs Ray {version}; jobs need Ray {oldest} or newer")


def can_have_environment(job: QueuedJob, room: Room, _rules: PlanRules) -> Refusal | None:
    """The job's runtime_env must go with the cluster's and with its Ray, and must not have failed there."""
    view = room.view
    reason = next((why for cluster, why in job.unfit if cluster == room.name), None)
    reason = reason or ray_objection(job.ray_needs, view.ray_needs, view.snapshot.ray_version)
    reason = reason or view.failing.get(job.env_key)
    return Refusal(cause=Cause.ENVIRONMENT, sentence=reason) if reason else None


def is_not_avoided(job: QueuedJob, room: Room, _rules: PlanRules) -> Refusal | None:
    """A cluster that failed the job gets it again only where nothing else could hold it: `heed_avoid`."""
    if room.name not in job.avoid:
        return None
    return Refusal(
        cause=Cause.AVOIDED, sentence="it failed this job before, and another cluster could hold it"
    )


def can_ever_hold(job: QueuedJob, room: Room, _rules: PlanRules) -> Refusal | None:
    """The claim must fit into the empty cluster; a cluster of unknown size is no candidate."""
    if unknown := room.unknown(job.claim):
        names = ", ".join(unknown)
        return Refusal(
            cause=Cause.UNKNOWN_RESOURCES,
            sentence=f"its total of {names} is unknown; set max_resources for it in clusters.yaml",
        )
    if lack := room.beyond(job.claim):
        has = show(_only(room.capacity, lack))
        sentence = f"needs {show(_only(job.claim, lack))}; the whole cluster has {has}"
        return Refusal(cause=Cause.TOO_LARGE, sentence=sentence, missing=lack)
    return None


def has_allowance(_job: QueuedJob, room: Room, _rules: PlanRules) -> Refusal | None:
    """A cluster starts only so many jobs at a time: this passes when they have started."""
    if room.view.allowance is None or room.placed < room.view.allowance:
        return None
    return Refusal(
        cause=Cause.PACED, sentence=f"{being_started(room)}; more at once would slow all of them down"
    )


def is_not_throttled(_job: QueuedJob, room: Room, _rules: PlanRules) -> Refusal | None:
    """A cluster on which jobs die quickly gets few or none, until one does better: policy/throttle.py."""
    snapshot = room.view.snapshot
    if snapshot.throttle is None or room.placed < snapshot.throttle:
        return None
    return Refusal(cause=Cause.THROTTLED, sentence=snapshot.throttle_reason)


def has_driver_slot(_job: QueuedJob, room: Room, _rules: PlanRules) -> Refusal | None:
    """Every running job costs its head a driver process, and too many kill the head."""
    if room.slots > 0:
        return None
    live, most = room.view.live_jobs + room.placed, room.view.spec.max_running_jobs
    return Refusal(
        cause=Cause.DRIVER_CAP, sentence=f"our jobs there: {live} of at most {most} (max_running_jobs)"
    )


def has_room(job: QueuedJob, room: Room, _rules: PlanRules) -> Refusal | None:
    """The claim must fit into what is free now."""
    lack = shortfall(job.claim, room.free)
    if not lack:
        return None
    return Refusal(cause=Cause.NO_ROOM, sentence=_needs(job, room, lack), missing=lack)


def is_not_kept_for_another(job: QueuedJob, room: Room, _rules: PlanRules) -> Refusal | None:
    """What is kept for a job that has waited too long is not for others."""
    if room.kept_for is None:
        return None
    lack = shortfall(job.claim, room.free_for_others())
    if not lack and room.slots > 1:
        return None
    kept = "kept for a job that has waited too long"  # not which: it may be somebody else's
    sentence = f"{_needs(job, room, lack)}, but {kept}" if lack else f"its last place for a job is {kept}"
    return Refusal(cause=Cause.RESERVED, sentence=sentence, missing=lack)


#: Reasons that a pass cannot change, cheapest first.
LASTING: tuple[Check, ...] = (
    is_healthy,
    is_not_drained,
    has_supported_version,
    can_have_environment,
    is_not_avoided,
    can_ever_hold,
)
#: Reasons that go by when jobs end; the pace of starts is last: it means that nothing else is in the way.
PASSING: tuple[Check, ...] = (
    is_not_throttled,
    has_driver_slot,
    has_room,
    is_not_kept_for_another,
    has_allowance,
)
#: What ends when our own jobs have started or ended. A throttle may stay: no room is kept for its sake.
GOES_BY = frozenset({Cause.PACED, Cause.DRIVER_CAP, Cause.NO_ROOM})


def objection(
    job: QueuedJob, room: Room, rules: PlanRules, checks: Sequence[Check] = (*LASTING, *PASSING)
) -> Refusal | None:
    """Return the first objection to a job on a cluster, or None when it may go there."""
    for check in checks:
        if refusal := check(job, room, rules):
            return refusal
    return None


def being_started(room: Room) -> str:
    """Say how many jobs a cluster is starting, with those that go before in this pass."""
    count = room.view.starting + room.placed
    return f"{count} job{' is' if count == 1 else 's are'} being started there"


def awaited(rooms: Iterable[Room]) -> tuple[str, ...]:
    """Return the clusters that are to be looked at before anything is placed."""
    return tuple(room.name for room in rooms if room.view.snapshot.awaited)


def patience_s(snapshots: Iterable[ClusterSnapshot], rules: PlanRules) -> float:
    """Return how long a start takes where it is quickest, if nothing is wrong."""
    starts = (rules.first_start_s if seen.start_s is None else seen.start_s for seen in snapshots)
    return slow_from_s(min(starts, default=0.0))


def is_worth_a_wait(room: Room, refusal: Refusal | None, *, now: float, patience_s: float) -> bool:
    """Tell whether a job waits for its preferred cluster, which has refused it so.

    Only if nothing but the pace of starts is in the way, and no longer than a start takes elsewhere: no more
    jobs wait than it can start at once, and none when even its latest start is overdue.
    """
    if refusal is None or refusal.cause is not Cause.PACED:
        return False
    latest = now if room.placed else room.view.last_start_at
    on_time = latest is not None and 0 <= now - latest <= patience_s
    return on_time and room.waited_for < room.view.starting + (room.view.allowance or 0)


def heed_avoid(job: QueuedJob, rooms: Iterable[Room], rules: PlanRules) -> QueuedJob:
    """Forget which clusters the job should avoid when no other one could hold it."""
    others = (room for room in rooms if room.name not in job.avoid)
    if job.avoid and all(objection(job, room, rules, LASTING) for room in others):
        return replace(job, avoid=())
    return job


def has_failed_everywhere(job: QueuedJob, rooms: Sequence[Room], rules: PlanRules) -> str | None:
    """Say why an environment can work on no cluster; None when one may yet.

    Clusters must have shown it, by a try or by their Ray. What only the configuration is against waits for
    another one.
    """
    if not any(_has_shown(job, room.view) for room in rooms):
        return None
    refusals = {room.name: _for_good(job, room, rules) for room in rooms}
    if not all(refusals.values()):
        return None
    return "; ".join(f"{name!r}: {refusal.sentence}" for name, refusal in refusals.items() if refusal)


def _has_shown(job: QueuedJob, view: ClusterView) -> bool:
    objects = ray_objection(job.ray_needs, view.ray_needs, view.snapshot.ray_version) is not None
    return objects or job.env_key in view.failing


def _for_good(job: QueuedJob, room: Room, rules: PlanRules) -> Refusal | None:
    if refusal := objection(job, room, rules, (has_supported_version, can_have_environment)):
        return refusal
    refusal = can_ever_hold(job, room, rules)
    healthy = room.view.snapshot.health is Health.HEALTHY  # else its size says little
    return refusal if healthy and refusal and refusal.cause is Cause.TOO_LARGE else None


def never_fits(claim: Resources, views: Sequence[ClusterView]) -> str | None:
    """Say why no cluster could ever hold a claim; None when one could, or might.

    A cluster whose size is unknown might, and so might one that is drained or ill now.
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


def _needs(job: QueuedJob, room: Room, names: Iterable[str]) -> str:
    free = {name: max(0.0, amount) for name, amount in _only(room.free, names).items()}
    return f"needs {show(_only(job.claim, names))}; free: {show(free)} of {show(_only(room.capacity, names))}"


def _only(amounts: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    return {name: amounts.get(name, 0.0) for name in names}
