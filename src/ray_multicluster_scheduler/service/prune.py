"""How long history is kept: from the settings to the rules, and removing all that need not be kept."""

from __future__ import annotations

from ray_multicluster_scheduler.config import Settings
from ray_multicluster_scheduler.model.retention import Keep, Pruned
from ray_multicluster_scheduler.service.views import PruneView
from ray_multicluster_scheduler.store_ports import JobStore

DAY_S = 86400.0
MIB = 2**20
#: About 100 MB, so that a flood of audit entries cannot fill the disk.
MOST_AUDIT_ENTRIES = 500_000
#: Jobs per transaction. Other writers wait for each transaction.
STEP_JOBS = 100


def keep_rules(settings: Settings) -> Keep:
    """Return the retention rules of the settings."""
    return Keep(
        jobs_s=settings.keep_jobs_days * DAY_S,
        logs_s=settings.keep_logs_days * DAY_S,
        secrets_s=settings.keep_secrets_days * DAY_S,
        audit_s=settings.keep_audit_days * DAY_S,
        audit=MOST_AUDIT_ENTRIES,
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


def prune(store: JobStore, keep: Keep, *, now: float, dry_run: bool) -> PruneView:
    """Remove all that need not be kept and give its space back; or only say what would go."""
    before = store.space().file_bytes
    if dry_run:
        found = store.prunable(keep, now=now)
        return PruneView(
            dry_run=True,
            jobs=found.jobs,
            logs=found.logs,
            secrets=None,
            bytes_before=before,
            bytes_after=None,
            given_back=True,
        )
    pruned = prune_all(store, keep, now=now)
    given_back = store.compact(rewrite=store.leader(now=now) is None)
    return PruneView(
        dry_run=False,
        jobs=pruned.jobs,
        logs=pruned.logs,
        secrets=pruned.secrets,
        bytes_before=before,
        bytes_after=store.space().file_bytes,
        given_back=given_back,
    )
