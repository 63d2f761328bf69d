"""The score of a cluster for a job. `prefer: true` goes first, then the best total, then the name.

    total = fit × weight × health + tags + warm + gpu

computed from left to right, one operation after the other, so that the matrix makes identical choices.
Scores are compared only between clusters that passed every check. To add a part, write a function and put it
into `FACTORS` or `BONUSES`; its parameters declare its inputs (signature.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ray_multicluster_scheduler.core.placement.capacity import Room
from ray_multicluster_scheduler.core.placement.plan_rules import PlanRules
from ray_multicluster_scheduler.core.placement.signature import Rule
from ray_multicluster_scheduler.model.decision import QueuedJob, Score
from ray_multicluster_scheduler.model.resources import Resources


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
