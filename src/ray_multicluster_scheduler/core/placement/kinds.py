"""Kinds of jobs: for two jobs of one kind, every check and every score gives the same result."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache

from ray_multicluster_scheduler.core.placement import checks, scoring
from ray_multicluster_scheduler.core.placement.checks import Check
from ray_multicluster_scheduler.core.placement.scoring import Part
from ray_multicluster_scheduler.core.placement.signature import job_key
from ray_multicluster_scheduler.model.decision import QueuedJob


def placement_key(job: QueuedJob) -> Hashable:
    """Return a value that is equal for jobs of one kind: all inputs of the rules."""
    return _key_of((*checks.CHECKS, scoring.FIT, *scoring.FACTORS, *scoring.BONUSES))(job)


@lru_cache(maxsize=4)
def _key_of(rules: tuple[Check | Part, ...]) -> Callable[[QueuedJob], Hashable]:
    return job_key({name for rule in rules for name in rule.job})
