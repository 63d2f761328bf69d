"""From the settings of clusters.yaml to the rules of the pure parts."""

from __future__ import annotations

from ray_multicluster_scheduler.config import Settings
from ray_multicluster_scheduler.core.flow.token_bucket import TokenBucket
from ray_multicluster_scheduler.core.lifecycle.observe import ObserveRules
from ray_multicluster_scheduler.core.lifecycle.retry import RetryRules
from ray_multicluster_scheduler.core.placement.rules import PlanRules


def observe_rules(settings: Settings) -> ObserveRules:
    """Return how long is long for an attempt that is not heard of."""
    return ObserveRules(
        unreachable_after_s=settings.unreachable_after_s,
        lost_after_refused_s=settings.lost_after_refused_s,
    )


def retry_rules(settings: Settings) -> RetryRules:
    """Return the budget and pace of retries."""
    return RetryRules(
        max_infra_retries=settings.max_infra_retries,
        delay_s=settings.retry_delay_s,
        max_delay_s=settings.retry_max_delay_s,
    )


def plan_rules(settings: Settings) -> PlanRules:
    """Return the rules of the planner."""
    return PlanRules(starvation_after_s=settings.starvation_after_s)


def replacement_bucket(settings: Settings) -> TokenBucket:
    """Return the pace at which jobs of dead clusters are started anew."""
    return TokenBucket(per_s=settings.replacement_rate, burst=max(1, round(settings.replacement_rate)))
