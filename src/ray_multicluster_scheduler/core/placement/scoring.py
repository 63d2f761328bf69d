"""The score of a cluster for a job. `prefer: true` goes first, then the best total, then the name.

    total = fit × weight × health + tags + warm + gpu

computed from left to right, one operation after the other, so that the matrix makes identical choices.
Scores are compared only between clusters that passed every check. To add a part, write a function and put it
into `FACTORS` or `BONUSES`; its parameters declare its inputs (below).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Generic, TypeVar, cast

from ray_multicluster_scheduler.core.placement.capacity import Room
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.decision import ClusterView, QueuedJob, Score
from ray_multicluster_scheduler.model.resources import Resources

# The inputs of a check or of a part of the score, read from the names of its parameters.
#
# A rule is a plain function. Its parameters are fields of `QueuedJob`, attributes of `ClusterView`, `room`
# (the cluster as it fills up during a pass) and `rules`. So the planner knows for which jobs and clusters a
# rule has equal inputs, and evaluates it once for all of them. It also knows which results a placement can
# change: those of rules with the parameter `room`.


Answer = TypeVar("Answer")


def _names(record: type) -> frozenset[str]:
    computed = {name for name, value in vars(record).items() if isinstance(value, property)}
    return frozenset(field.name for field in fields(record)) | computed


#: The identity and age of a job are not part of its kind: jobs of one kind get the same decision.
OF_JOB = _names(QueuedJob) - {"submission_id", "seq", "waiting_since", "claim_key"}
OF_CLUSTER = _names(ClusterView) - OF_JOB


class Rule(Generic[Answer]):
    """A function with its declared inputs. Call it with a job, a room and the rules."""

    def __init__(self, function: Callable[..., Answer]) -> None:
        self.function = function
        self.name: str = getattr(function, "__name__", "")
        names = tuple(inspect.signature(function).parameters)
        if unknown := [name for name in names if name not in {*OF_JOB, *OF_CLUSTER, "room", "rules"}]:
            raise TypeError(
                f"the rule {self.name!r} looks at {', '.join(unknown)}: no field of QueuedJob or ClusterView"
            )
        #: Its inputs: fields of the job, and attributes of the cluster that no placement changes.
        self.job = tuple(name for name in names if name in OF_JOB)
        self.cluster = tuple(name for name in names if name in OF_CLUSTER)
        #: Whether a placement on a cluster can change its result there.
        self.changes = "room" in names
        self.with_rules = "rules" in names
        self._arguments = tuple((name, *_argument(name)) for name in names)
        self._cluster_values = attrgetter(*self.cluster) if self.cluster else lambda _view: None
        #: Returns a value that is equal for jobs with equal inputs of this rule.
        self.job_key = job_key(self.job)
        #: Inputs and results of the last pass: most passes have the same jobs and clusters again. All threads
        #: share it, so it is replaced as a whole and never modified.
        self.last_said: tuple[Hashable, Any] | None = None

    def __call__(self, job: QueuedJob, room: Room, rules: PlanRules) -> Answer:
        """Return the result of the function."""
        sources = (job, room.view, room, rules)
        return self.function(**{name: get(sources[number]) for name, number, get in self._arguments})

    def cluster_key(self, room: Room) -> Hashable:
        """Return a value that is equal for clusters with equal inputs of this rule."""
        values = self._cluster_values(room.view)
        try:
            hash(values)
        except TypeError:
            return tuple(_hashable(getattr(room.view, name)) for name in self.cluster)
        return cast(Hashable, values)


def job_key(names: Iterable[str]) -> Callable[[QueuedJob], Hashable]:
    """Return a function that combines these fields of a job into one hashable value."""
    keys = sorted("claim_key" if name == "claim" else name for name in names)
    return attrgetter(*keys) if keys else lambda _job: None


def _argument(name: str) -> tuple[int, Callable[[Any], Any]]:
    """Return which of (job, view, room, rules) holds the value of a parameter, and a getter for it."""
    if name in OF_JOB:
        return 0, attrgetter(name)
    if name in OF_CLUSTER:
        return 1, attrgetter(name)
    return (2 if name == "room" else 3), _whole


def _whole(value: Any) -> Any:
    return value


class _Same:
    """Compares an unhashable value by identity, and keeps the object alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value


def _hashable(value: Any) -> Hashable:
    """Return the value, or its identity if it is unhashable: equal objects are then only evaluated twice."""
    try:
        hash(value)
    except TypeError:
        return _Same(value)
    return value  # type: ignore[no-any-return]


def fit(claim: Resources, room: Room, rules: PlanRules) -> float:
    """Return the fraction of the scarcest claimed resource that is free after the job is placed.

    If claims differ, return the fraction in use instead: small jobs then fill one cluster after the other,
    and leave room for large jobs on the others.
    """
    shares = [
        (room.free[name] - amount) / room.capacity[name]
        for name, amount in claim.items()
        if room.capacity.get(name)
    ]
    stays_free = min(shares, default=1.0)
    return 1.0 - stays_free if rules.best_fit else stays_free


def weight(cluster_weight: float) -> float:
    """Return the configured weight of the cluster."""
    return cluster_weight


def health(health_score: float) -> float:
    """Return how reliably and fast the cluster has recently answered."""
    return health_score


def tags(tags: tuple[str, ...], cluster_tags: tuple[str, ...], rules: PlanRules) -> float:
    """Favour clusters that have the job's tags."""
    wanted = frozenset(tags)
    return rules.tags_bonus * len(wanted & frozenset(cluster_tags)) / len(wanted) if wanted else 0.0


def warm(env_key: str, warm: frozenset[str], rules: PlanRules) -> float:
    """Favour clusters that have set up this environment before."""
    return rules.warm_bonus if env_key and env_key in warm else 0.0


def gpu(*, needs_gpus: bool, has_gpus: bool, rules: PlanRules) -> float:
    """Keep clusters with GPUs for jobs that need them."""
    return -rules.gpu_penalty if has_gpus and not needs_gpus else 0.0


Part = Rule[float]
#: The matrix computes this part for all kinds of jobs at once, from the same amounts.
FIT: Part = Rule(fit)
FACTORS: tuple[Part, ...] = (Rule(weight), Rule(health))
BONUSES: tuple[Part, ...] = (Rule(tags), Rule(warm), Rule(gpu))


def part_names() -> tuple[str, ...]:
    """Return the names of all parts of a score, in the order of the formula."""
    return tuple(part.name for part in (FIT, *FACTORS, *BONUSES))


def score(job: QueuedJob, room: Room, rules: PlanRules) -> Score:
    """Score a cluster that passed every check, with the parts of the total."""
    parts = {part.name: part(job, room, rules) for part in (FIT, *FACTORS, *BONUSES)}
    total = parts[FIT.name]
    for factor in FACTORS:
        total *= parts[factor.name]
    for bonus in BONUSES:
        total += parts[bonus.name]
    return Score(total=total, parts=parts, prefer=room.view.spec.prefer)


def best(scores: Mapping[str, Score]) -> str | None:
    """Return the best of the scored clusters; None if there is none."""
    return min(scores, key=lambda name: (not scores[name].prefer, -scores[name].total, name), default=None)


def claims_differ(claims: Sequence[Resources]) -> bool:
    """Tell whether jobs claim different amounts: only then can small jobs block a larger one."""
    return any(claim != claims[0] for claim in claims)
