"""Checks whether a job may go to a cluster now. Each returns a refusal with a reason, or None.

To add a rule, write a function and put it into `CHECKS`: the engine, `explain`, the dry run, tasks and actors
all use it. The names of its parameters declare its inputs (scoring.py), and the planner's matrix is
derived from that (matrix.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ray_multicluster_scheduler.core.placement.capacity import Room, limit_origin, open_rooms
from ray_multicluster_scheduler.core.placement.scoring import Rule
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.environment.ray_needs import ray_objection
from ray_multicluster_scheduler.model.cluster import Health, RayNeeds
from ray_multicluster_scheduler.model.decision import Cause, ClusterView, QueuedJob, Refusal
from ray_multicluster_scheduler.model.execution import not_here
from ray_multicluster_scheduler.model.resources import Resources, shortfall, show

_RAY_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})")


def is_allowed(
    only_cluster: str | None, only_tags: tuple[str, ...], name: str, cluster_tags: tuple[str, ...]
) -> Refusal | None:
    """A job may name the one cluster, or the tags of the clusters, that it runs on."""
    if only_cluster is not None and name != only_cluster:
        return Refusal(cause=Cause.EXCLUDED, sentence=f"the job may run on {only_cluster!r} only")
    if lacking := [tag for tag in only_tags if tag not in cluster_tags]:
        tags = ", ".join(map(repr, lacking))
        sentence = f"it lacks the tag{'s' if len(lacking) > 1 else ''} {tags} that the job insists on"
        return Refusal(cause=Cause.EXCLUDED, sentence=sentence)
    return None


def is_healthy(health: Health, problem: str | None, *, takes_silent: bool) -> Refusal | None:
    """A cluster that was never probed is not healthy. For a silent one see `with_last_resorts`."""
    if health is Health.HEALTHY and (problem is None or takes_silent):
        return None
    if health is Health.HEALTHY:
        sentence = f"its last probe failed ({problem}), and a cluster that answers could hold the job"
        return Refusal(cause=Cause.UNHEALTHY, sentence=sentence)
    if health is Health.UNKNOWN:
        return Refusal(cause=Cause.UNSEEN, sentence="it has not been looked at yet")
    return Refusal(cause=Cause.UNHEALTHY, sentence=problem or "it is not healthy")


def has_executor(executor: str, rules: PlanRules) -> Refusal | None:
    """A job that a newer version has accepted may need what this one does not have."""
    if executor in rules.executors:
        return None
    return Refusal(cause=Cause.VERSION, sentence=not_here(executor))


def is_not_drained(*, drained: bool, drain_reason: str) -> Refusal | None:
    """A drained cluster finishes its jobs and gets no new ones."""
    if not drained:
        return None
    why = f": {drain_reason}" if drain_reason else ""
    return Refusal(cause=Cause.DRAINED, sentence=f"it is drained{why}")


def has_supported_version(ray_version: str | None, rules: PlanRules) -> Refusal | None:
    """An unknown version, or one that cannot be parsed, is no reason to refuse."""
    parts = _RAY_VERSION.match(ray_version or "")
    if parts is None or (int(parts[1]), int(parts[2])) >= rules.min_ray_version:
        return None
    oldest = ".".join(map(str, rules.min_ray_version))
    sentence = f"it runs Ray {ray_version}; jobs need Ray {oldest} or newer"
    return Refusal(cause=Cause.VERSION, sentence=sentence)


def has_versions_of_client(
    client_ray: str | None, client_python: str | None, ray_version: str | None, python_version: str | None
) -> Refusal | None:
    """Ray Client needs the same Ray and the same minor version of Python at both ends."""
    theirs = (("Ray", client_ray, ray_version), ("Python", _minor(client_python), _minor(python_version)))
    wrong = [(name, wanted, found) for name, wanted, found in theirs if wanted and found and wanted != found]
    if not wrong:
        return None
    has = " and ".join(f"{name} {found}" for name, _, found in wrong)
    needs = " and ".join(f"{name} {wanted}" for name, wanted, _ in wrong)
    return Refusal(cause=Cause.VERSION, sentence=f"it runs {has}; this program has {needs}")


def can_compose_environment(unfit: tuple[tuple[str, str], ...], name: str) -> Refusal | None:
    """The job's runtime_env must be compatible with the cluster's own."""
    reason = next((why for cluster, why in unfit if cluster == name), None)
    return Refusal(cause=Cause.ENVIRONMENT, sentence=reason) if reason else None


def has_ray_for_environment(
    ray_needs: RayNeeds, cluster_ray_needs: RayNeeds, ray_version: str | None
) -> Refusal | None:
    """The environments of the job and of the cluster must be compatible with the cluster's Ray."""
    reason = ray_objection(ray_needs, cluster_ray_needs, ray_version)
    return Refusal(cause=Cause.ENVIRONMENT, sentence=reason) if reason else None


def can_set_up_environment(env_key: str, failing: Mapping[str, str]) -> Refusal | None:
    """An environment that has just failed on a cluster is not tried there again for a while."""
    reason = failing.get(env_key)
    return Refusal(cause=Cause.ENVIRONMENT, sentence=reason) if reason else None


def is_not_avoided(avoid: tuple[str, ...], name: str) -> Refusal | None:
    """A cluster that failed the job gets it again only if no other could hold it (`with_last_resorts`)."""
    if name not in avoid:
        return None
    return Refusal(
        cause=Cause.AVOIDED, sentence="it failed this job before, and another cluster could hold it"
    )


def has_allowance(room: Room) -> Refusal | None:
    """A cluster starts a limited number of jobs at a time; this refusal ends when they have started."""
    if room.view.allowance is None or room.placed < room.view.allowance:
        return None
    return Refusal(
        cause=Cause.PACED, sentence=f"{being_started(room)}; more at once would slow all of them down"
    )


def is_not_throttled(room: Room) -> Refusal | None:
    """A cluster on which jobs die quickly gets few or none until one succeeds: see core/quarantine.py."""
    snapshot = room.view.snapshot
    if snapshot.throttle is None or room.placed < snapshot.throttle:
        return None
    return Refusal(cause=Cause.THROTTLED, sentence=snapshot.throttle_reason)


def has_driver_slot(room: Room, *, needs_driver_slot: bool) -> Refusal | None:
    """A job may cost its head a driver process, and too many kill the head."""
    if not needs_driver_slot or room.slots > 0:
        return None
    origin = limit_origin(room.view.spec, room.view.snapshot)
    sentence = f"our jobs there: {room.drivers} of at most {room.driver_limit} ({origin})"
    return Refusal(cause=Cause.DRIVER_CAP, sentence=sentence)


def has_slot_beside_reservation(room: Room, *, needs_driver_slot: bool) -> Refusal | None:
    """The last driver slot of a cluster with a reservation is kept as well."""
    kept_for = room.kept_for
    if not needs_driver_slot or kept_for is None or not kept_for.needs_driver_slot or room.slots > 1:
        return None
    return Refusal(cause=Cause.RESERVED, sentence=f"its last place for a job is {_KEPT}")


@dataclass(frozen=True, slots=True, eq=False)
class ResourceCheck:
    """A check that compares the claim with amounts. The matrix does this for all kinds of jobs at once."""

    amounts: Callable[[Room], Resources]
    #: Makes the refusal from the claim, the room and the missing amounts.
    refuse: Callable[[Resources, Room, Resources], Refusal]
    #: Whether a placement changes the amounts.
    changes: bool
    #: The same attribute as in `Rule`.
    job: tuple[str, ...] = ("claim",)

    def __call__(self, job: QueuedJob, room: Room, _rules: PlanRules) -> Refusal | None:
        """Refuse if any amount is missing."""
        missing = shortfall(job.claim, self.amounts(room))
        return self.refuse(job.claim, room, missing) if missing else None


Check = Rule[Refusal | None] | ResourceCheck


def _never(claim: Resources, room: Room, _missing: Resources) -> Refusal:
    """The claim must fit into the empty cluster; a cluster of unknown size is no candidate."""
    if unknown := room.unknown(claim):
        names = ", ".join(unknown)
        return Refusal(
            cause=Cause.UNKNOWN_RESOURCES,
            sentence=f"its total of {names} is unknown; set max_resources for it in clusters.yaml",
        )
    lack = room.beyond(claim)
    sentence = f"needs {show(_only(claim, lack))}; the whole cluster has {show(_only(room.capacity, lack))}"
    return Refusal(cause=Cause.TOO_LARGE, sentence=sentence, missing=lack)


def _not_now(claim: Resources, room: Room, missing: Resources) -> Refusal:
    return Refusal(cause=Cause.NO_ROOM, sentence=_needs(claim, room, missing), missing=missing)


def _reserved(claim: Resources, room: Room, missing: Resources) -> Refusal:
    sentence = f"{_needs(claim, room, missing)}, but {_KEPT}"
    return Refusal(cause=Cause.RESERVED, sentence=sentence, missing=missing)


can_ever_hold = ResourceCheck(lambda room: room.capacity, _never, changes=False)
has_room = ResourceCheck(lambda room: room.free, _not_now, changes=True)
has_room_beside_reservation = ResourceCheck(Room.free_for_others, _reserved, changes=True)

#: The reserved job is not named: it may belong to another user.
_KEPT = "kept for a job that has waited too long"

ENVIRONMENT_CHECKS: tuple[Check, ...] = (
    Rule(can_compose_environment),
    Rule(has_ray_for_environment),
    Rule(can_set_up_environment),
)
#: The first objection in this order is reported. Lasting reasons come before temporary ones. The pace of
#: starts is last: as a reason it means that there is no other one.
CHECKS: tuple[Check, ...] = (
    Rule(has_executor),
    Rule(is_allowed),
    Rule(is_healthy),
    Rule(is_not_drained),
    Rule(has_supported_version),
    Rule(has_versions_of_client),
    *ENVIRONMENT_CHECKS,
    Rule(is_not_avoided),
    can_ever_hold,
    Rule(is_not_throttled),
    Rule(has_driver_slot),
    has_room,
    Rule(has_slot_beside_reservation),
    has_room_beside_reservation,
    Rule(has_allowance),
)
#: Causes that end when our own jobs have started or ended. No room is kept because of others, such as a
#: throttle, which may last.
GOES_BY = frozenset({Cause.PACED, Cause.DRIVER_CAP, Cause.NO_ROOM})


def lasting_checks() -> tuple[Check, ...]:
    """Return the checks whose results do not change with placements."""
    return tuple(check for check in CHECKS if not check.changes)


def passing_checks() -> tuple[Check, ...]:
    """Return the checks whose results may change with each placement."""
    return tuple(check for check in CHECKS if check.changes)


def objection(
    job: QueuedJob, room: Room, rules: PlanRules, checks: Sequence[Check] | None = None
) -> Refusal | None:
    """Return the first objection to a job on a cluster, or None if it may go there."""
    for check in CHECKS if checks is None else checks:
        if refusal := check(job, room, rules):
            return refusal
    return None


def with_last_resorts(job: QueuedJob, rooms: Sequence[Room], rules: PlanRules) -> QueuedJob:
    """Allow a job clusters that it should not go to, if no other one could hold it.

    First those whose last probe failed, then those that failed this job before.
    """
    lasting = lasting_checks()
    if any(room.view.is_silent for room in rooms):
        job = replace(job, takes_silent=all(objection(job, room, rules, lasting) for room in rooms))
    if job.avoid and all(objection(job, room, rules, lasting) for room in rooms):
        job = replace(job, avoid=())
    return job


def being_started(room: Room) -> str:
    """Say how many jobs a cluster is starting, including earlier placements of this pass."""
    count = room.view.starting + room.placed
    return f"{count} job{' is' if count == 1 else 's are'} being started there"


def _minor(version: str | None) -> str:
    return ".".join((version or "").split(".")[:2])


def _needs(claim: Resources, room: Room, names: Iterable[str]) -> str:
    free = {name: max(0.0, amount) for name, amount in _only(room.free, names).items()}
    others = {name: room.view.snapshot.claimed_by_others.get(name, 0.0) for name in free}
    taken = {name: amount for name, amount in others.items() if amount}
    why = f" ({show(taken)} claimed by another scheduler)" if taken else ""
    wanted, capacity = show(_only(claim, names)), show(_only(room.capacity, names))
    return f"needs {wanted}; free: {show(free)} of {capacity}{why}"


def _only(amounts: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    return {name: amounts.get(name, 0.0) for name in names}


# Jobs that can never start: no cluster is large enough, or none can set up the environment.


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
