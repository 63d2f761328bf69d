"""How good is a cluster for a job? `prefer: true` goes first; then the best total wins, then the name.

    total = free_share × weight × health + tags + warm + gpu

computed from left to right, one operation after the other, so that another implementation in floating point
can make identical choices. Scores are compared only between clusters that passed every check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ray_multicluster_scheduler.model.decision import QueuedJob, Score
from ray_multicluster_scheduler.policy.ledger import Room
from ray_multicluster_scheduler.policy.rules import PlanRules

Part = Callable[[QueuedJob, Room, PlanRules], float]


def free_share(job: QueuedJob, room: Room, _rules: PlanRules) -> float:
    """Return the share of the scarcest claimed resource that stays free after the job got its place."""
    shares = [
        (room.free[name] - amount) / room.capacity[name]
        for name, amount in job.claim.items()
        if room.capacity.get(name)
    ]
    return min(shares, default=1.0)


def weight(_job: QueuedJob, room: Room, _rules: PlanRules) -> float:
    """Return how much the configuration thinks of this cluster."""
    return room.view.spec.weight


def health(_job: QueuedJob, room: Room, _rules: PlanRules) -> float:
    """Return how well and fast it has answered lately."""
    return room.view.snapshot.score


def tags(job: QueuedJob, room: Room, rules: PlanRules) -> float:
    """Favour clusters that have the job's tags."""
    wanted = frozenset(job.tags)
    return rules.tags_bonus * len(wanted & frozenset(room.view.spec.tags)) / len(wanted) if wanted else 0.0


def warm(job: QueuedJob, room: Room, rules: PlanRules) -> float:
    """Favour clusters that have set up this environment before."""
    return rules.warm_bonus if job.env_key and job.env_key in room.view.warm else 0.0


def gpu(job: QueuedJob, room: Room, rules: PlanRules) -> float:
    """Keep clusters with GPUs for jobs that need them."""
    wasted = room.capacity.get("GPU", 0.0) > 0 and not job.claim.get("GPU")
    return -rules.gpu_penalty if wasted else 0.0


FACTORS: tuple[Part, ...] = (free_share, weight, health)
BONUSES: tuple[Part, ...] = (tags, warm, gpu)


def score(job: QueuedJob, room: Room, rules: PlanRules) -> Score:
    """Rate a cluster that passed every check; the parts say how the total came about."""
    parts: dict[str, float] = {}
    total = 1.0
    for factor in FACTORS:
        parts[factor.__name__] = factor(job, room, rules)
        total *= parts[factor.__name__]
    for bonus in BONUSES:
        parts[bonus.__name__] = bonus(job, room, rules)
        total += parts[bonus.__name__]
    return Score(total=total, parts=parts, prefer=room.view.spec.prefer)


def best(scores: Mapping[str, Score]) -> str | None:
    """Return the cluster to take of those that may be taken; None when there is none."""
    return min(scores, key=lambda name: (not scores[name].prefer, -scores[name].total, name), default=None)
