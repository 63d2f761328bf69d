"""All numbers that the scheduler decides by, in one record."""

from __future__ import annotations

from dataclasses import dataclass, field

from ray_multicluster_scheduler.core.flow.pacing import TokenBucket
from ray_multicluster_scheduler.core.flow.quarantine import QuarantineRules
from ray_multicluster_scheduler.core.lifecycle.attempts import PollRules
from ray_multicluster_scheduler.core.lifecycle.observe import ObserveRules
from ray_multicluster_scheduler.core.lifecycle.retry import RetryRules
from ray_multicluster_scheduler.core.placement.plan_rules import PlanRules


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerRules:
    """The rules of placement, of the life of a job, and of how fast."""

    plan: PlanRules = field(default_factory=PlanRules)
    observe: ObserveRules = field(default_factory=ObserveRules)
    retry: RetryRules = field(default_factory=RetryRules)
    quarantine: QuarantineRules = field(default_factory=QuarantineRules)
    poll: PollRules
    #: How fast the jobs of a dead cluster are started anew.
    replacements: TokenBucket
    #: No cluster may be starting more jobs at once.
    most_starts: int
