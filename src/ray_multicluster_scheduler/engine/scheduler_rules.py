"""From the settings of clusters.yaml to the rules that the scheduler decides by."""

from __future__ import annotations

from ray_multicluster_scheduler.config import Settings
from ray_multicluster_scheduler.core.flow.quarantine import QuarantineRules
from ray_multicluster_scheduler.core.flow.token_bucket import TokenBucket
from ray_multicluster_scheduler.core.lifecycle.attempts import PollRules
from ray_multicluster_scheduler.core.lifecycle.observe import ObserveRules
from ray_multicluster_scheduler.core.lifecycle.retry import RetryRules
from ray_multicluster_scheduler.core.placement.plan_rules import PlanRules
from ray_multicluster_scheduler.core.rules import SchedulerRules


def scheduler_rules(settings: Settings) -> SchedulerRules:
    """Return all rules."""
    rate = settings.replacement_rate
    return SchedulerRules(
        plan=plan_rules(settings),
        observe=ObserveRules(
            unreachable_after_s=settings.unreachable_after_s,
            lost_after_refused_s=settings.lost_after_refused_s,
        ),
        retry=RetryRules(
            max_infra_retries=settings.max_infra_retries,
            delay_s=settings.retry_delay_s,
            max_delay_s=settings.retry_max_delay_s,
        ),
        quarantine=QuarantineRules(),
        poll=PollRules(poll_interval_s=settings.poll_interval_s, probe_interval_s=settings.probe_interval_s),
        replacements=TokenBucket(per_s=rate, burst=max(1, round(rate))),
        most_starts=settings.max_starts_in_flight,
    )


def plan_rules(settings: Settings) -> PlanRules:
    """Return the rules of the planner."""
    return PlanRules(starvation_after_s=settings.starvation_after_s)
