"""What a check or a part of the score looks at, read from the names of its parameters.

A rule is a plain function. Its parameters are fields of `QueuedJob` (what it looks at of the job), attributes
of `ClusterView` (what it looks at of the cluster), `room` (the cluster as it fills up during a pass) and
`rules`. So the planner knows which jobs and clusters a rule cannot tell apart, and asks once for all of them;
and it knows which answers a placement can change: those of rules that look at the `room`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable
from dataclasses import fields
from operator import attrgetter
from typing import Any, Generic, TypeVar

from ray_multicluster_scheduler.core.placement.capacity import Room
from ray_multicluster_scheduler.core.placement.rules import PlanRules
from ray_multicluster_scheduler.model.decision import ClusterView, QueuedJob

Answer = TypeVar("Answer")


def _names(record: type) -> frozenset[str]:
    computed = {name for name, value in vars(record).items() if isinstance(value, property)}
    return frozenset(field.name for field in fields(record)) | computed


#: A job's identity and age are no part of its kind: jobs of one kind are decided alike.
OF_JOB = _names(QueuedJob) - {"submission_id", "seq", "waiting_since", "claim_key"}
OF_CLUSTER = _names(ClusterView) - OF_JOB


class Rule(Generic[Answer]):
    """A function with what it looks at. Call it with a job, a room and the rules."""

    def __init__(self, function: Callable[..., Answer]) -> None:
        self.function = function
        self.name: str = getattr(function, "__name__", "")
        names = tuple(inspect.signature(function).parameters)
        if unknown := [name for name in names if name not in {*OF_JOB, *OF_CLUSTER, "room", "rules"}]:
            raise TypeError(
                f"the rule {self.name!r} looks at {', '.join(unknown)}: no field of QueuedJob or ClusterView"
            )
        #: The fields of a job, and the attributes of a cluster that no placement changes.
        self.job = tuple(name for name in names if name in OF_JOB)
        self.cluster = tuple(name for name in names if name in OF_CLUSTER)
        #: Whether a placement on a cluster can change its answer there.
        self.changes = "room" in names
        self.with_rules = "rules" in names
        self._arguments = tuple((name, *_argument(name)) for name in names)
        #: Returns a value that is equal for jobs which the rule cannot tell apart.
        self.job_key = job_key(self.job)
        #: What the rule has last said about whom: most passes ask again about the same jobs and clusters.
        self.last_said: tuple[Hashable, Any] | None = None

    def __call__(self, job: QueuedJob, room: Room, rules: PlanRules) -> Answer:
        """Return the answer of the function."""
        sources = (job, room, rules)
        values = {}
        for name, number, get in self._arguments:
            values[name] = get(sources[number])
        return self.function(**values)

    def cluster_key(self, room: Room) -> Hashable:
        """Return a value that is equal for clusters which the rule cannot tell apart."""
        values = tuple([getattr(room.view, name) for name in self.cluster])
        try:
            hash(values)
        except TypeError:
            return tuple(_hashable(value) for value in values)
        return values


def job_key(names: Iterable[str]) -> Callable[[QueuedJob], Hashable]:
    """Return what makes one value of these fields of a job, to compare jobs by."""
    keys = sorted("claim_key" if name == "claim" else name for name in names)
    return attrgetter(*keys) if keys else lambda _job: None


def _argument(name: str) -> tuple[int, Callable[[Any], Any]]:
    """Return which of (job, room, rules) has a parameter's value, and how it is read there."""
    if name in OF_JOB:
        return 0, attrgetter(name)
    if name in OF_CLUSTER:
        return 1, attrgetter(f"view.{name}")
    return (1 if name == "room" else 2), _whole


def _whole(value: Any) -> Any:
    return value


class _Same:
    """Compares a value that cannot be hashed by which object it is, and keeps that object alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value


def _hashable(value: Any) -> Hashable:
    """Return the value, or which object it is: two that are equal are then asked about twice, no more."""
    try:
        hash(value)
    except TypeError:
        return _Same(value)
    return value  # type: ignore[no-any-return]
