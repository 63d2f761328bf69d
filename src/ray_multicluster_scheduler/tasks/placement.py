"""Selects the cluster of a task or an actor: a pure function of the views of all clusters.

Home comes first while the work fits there, then the best other cluster with room. If no cluster has room, the
work waits inside Ray: at home if home is large enough, else on a cluster that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ray_multicluster_scheduler.core.placement.capacity import Room, open_rooms, share_of
from ray_multicluster_scheduler.core.placement.checks import (
    can_ever_hold,
    has_room,
    lasting_checks,
    never_fits,
    objection,
    passing_checks,
    with_last_resorts,
)
from ray_multicluster_scheduler.core.placement.scoring import Rule, best, score
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.errors import NeverFits, NoClusterAvailable
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot
from ray_multicluster_scheduler.model.decision import Cause, ClusterView, QueuedJob, Refusal, Score
from ray_multicluster_scheduler.model.resources import show


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Tasks and actors need the same Ray version and the same minor version of Python."""

    ray: str
    python: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The cluster of a task or an actor, with the score or the refusal of each cluster."""

    cluster: str
    sentence: str
    refusals: Mapping[str, Refusal] = field(default_factory=dict)
    scores: Mapping[str, Score] = field(default_factory=dict)
    #: Home is large enough for it, too.
    home_holds: bool = True
    #: No cluster has room now: the work waits where it was sent.
    waits: bool = False


class NoRoomNow(NoClusterAvailable):
    """No cluster has room now, and the work was not to wait inside Ray."""


RULES = PlanRules()


def place(
    work: QueuedJob,
    views: Sequence[ClusterView],
    *,
    home: str | None,
    ours: Versions,
    unfit: Mapping[str, str] | None = None,
) -> Decision:
    """Choose a cluster, or raise `NeverFits` or `NoClusterAvailable`.

    `home` is the cluster that this program has joined, or None before that. `unfit` are clusters that cannot
    be used now, with the reason for each.
    """

    def same_version(snapshot: ClusterSnapshot) -> Refusal | None:
        return _version_refusal(snapshot, ours)

    work = replace(work, unfit=tuple((unfit or {}).items()))
    lasting_elsewhere, passing = (*lasting_checks(), Rule(same_version)), passing_checks()
    rooms = {room.name: room for room in open_rooms(views)}
    alike = [room for room in rooms.values() if same_version(room.view.snapshot) is None]
    work = with_last_resorts(work, alike, RULES)
    lasting = {
        name: objection(work, room, RULES, (can_ever_hold,) if name == home else lasting_elsewhere)
        for name, room in rooms.items()
    }
    able = [name for name in rooms if lasting[name] is None]
    refusals = {
        name: lasting[name] or objection(work, room, RULES, (has_room,) if name == home else passing)
        for name, room in rooms.items()
    }
    scores = {name: score(work, rooms[name], RULES) for name in rooms if refusals[name] is None}
    if not able:
        raise _nowhere(work, views, refusals)
    cluster, sentence = _choose(work, home, scores, able, rooms)
    return Decision(
        cluster=cluster,
        sentence=sentence,
        refusals={name: why for name, why in refusals.items() if why is not None},
        scores=scores,
        home_holds=home in able,
        waits=not scores,
    )


def _choose(
    work: QueuedJob,
    home: str | None,
    scores: Mapping[str, Score],
    able: Sequence[str],
    rooms: Mapping[str, Room],
) -> tuple[str, str]:
    preferred = work.preferred_cluster
    if preferred is not None and preferred in scores:
        return preferred, "it is the preferred cluster"
    if home is not None and home in scores:
        return home, "home has room"
    if (chosen := best(scores)) is not None:
        return (
            chosen,
            "best of those that have room" if home is None else "home has no room; best of the others",
        )
    if preferred is not None and preferred in able:
        return preferred, "no cluster has room now; it waits on the preferred one"
    if home is not None and home in able:
        return home, "no cluster has room now; it waits at home"
    emptiest = min(able, key=lambda name: (-share_of(work.claim, rooms[name].free), name))
    return emptiest, "no cluster has room now; it waits where most of its claim is free"


def _version_refusal(snapshot: ClusterSnapshot, ours: Versions) -> Refusal | None:
    if snapshot.ray_version != ours.ray:
        return Refusal(
            cause=Cause.VERSION,
            sentence=f"it runs Ray {snapshot.ray_version or 'unknown'} and home {ours.ray}; tasks and "
            "actors, unlike jobs, need the same",
        )
    if snapshot.python_version is not None and _minor(snapshot.python_version) != _minor(ours.python):
        return Refusal(
            cause=Cause.VERSION,
            sentence=f"it runs Python {snapshot.python_version} and home {ours.python}; tasks and actors, "
            "unlike jobs, need the same minor version",
        )
    return None


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])


def _nowhere(
    work: QueuedJob, views: Sequence[ClusterView], refusals: Mapping[str, Refusal | None]
) -> NeverFits | NoClusterAvailable:
    if reason := never_fits(work.claim, views):
        return NeverFits(f"no cluster could ever hold it: {reason}")
    return NoClusterAvailable(f"no cluster can take it now (it needs {show(work.claim)}):{_lines(refusals)}")


def no_room(work: QueuedJob, decision: Decision) -> NoRoomNow:
    """Return the error for work that may not wait inside Ray, where this decision would let it."""
    needs = show(work.claim)
    return NoRoomNow(f"no cluster has room now (it needs {needs}):{_lines(decision.refusals)}")


def _lines(refusals: Mapping[str, Refusal | None]) -> str:
    return "".join(f"\n  - {name}: {why.sentence}" for name, why in refusals.items() if why is not None)
