"""How long history is kept: from the settings to the rules, and removing all that need not be kept."""

from __future__ import annotations

from ray_multicluster_scheduler.config import Settings
from ray_multicluster_scheduler.model.retention import Keep, Pruned
from ray_multicluster_scheduler.ports import JobStore

DAY_S = 86400.0
MIB = 2**20
#: Jobs in one transaction: others wait for it.
STEP_JOBS = 100


def keep_rules(settings: Settings) -> Keep:
    """Return what stays by the settings."""
    return Keep(
        jobs_s=settings.keep_jobs_days * DAY_S,
        logs_s=settings.keep_logs_days * DAY_S,
        secrets_s=settings.keep_secrets_days * DAY_S,
        jobs=settings.keep_jobs,
        size_bytes=settings.keep_store_mib * MIB,
    )


def prune_all(store: JobStore, keep: Keep, *, now: float) -> Pruned:
    """Remove at once all that need not be kept, in short transactions."""
    total, step = Pruned(), Pruned(more=True)
    while step.more:
        step = store.prune(keep, now=now, limit=STEP_JOBS)
        total = Pruned(
            jobs=total.jobs + step.jobs, logs=total.logs + step.logs, secrets=total.secrets + step.secrets
        )
    return total
