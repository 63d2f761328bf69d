"""Who schedules: another process, this one for a moment, or nobody. The commands say which."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from rich.text import Text

from ray_multicluster_scheduler.cli.clusters_cmd import watching
from ray_multicluster_scheduler.cli.render import age
from ray_multicluster_scheduler.engine.clock import SystemClock
from ray_multicluster_scheduler.errors import WaitTimeout
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot
from ray_multicluster_scheduler.model.job import Job, Lease
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.ports import JobStore
from ray_multicluster_scheduler.runtime import Scheduler

#: How long `submit --no-wait` leads, at most, when nobody else does.
LEAD_S = 5.0
NOT_SENT = frozenset({JobState.QUEUED, JobState.PLACED})


def leader_of(store: JobStore) -> Lease | None:
    """Return who schedules now, if anybody."""
    return store.leader(now=SystemClock().now())


def leader_name(lease: Lease) -> str:
    """Name a leader so that it can be found: `process 4711 on host`."""
    host, _, rest = lease.holder.partition(":")
    return f"process {rest.partition(':')[0]} on {host}" if rest else lease.holder


def send_what_fits(scheduler: Scheduler, submission_ids: Sequence[str]) -> None:
    """Lead until these jobs are on their clusters, a few seconds at most; what has no room stays queued."""
    try:
        for jobs in scheduler.jobs.changes(submission_ids, timeout_s=LEAD_S, tick_s=LEAD_S):
            scheduler.check()
            if not any(job.state in NOT_SENT for job in jobs.values()):
                return
    except WaitTimeout:
        return


def fresh_snapshots(scheduler: Scheduler) -> Mapping[str, ClusterSnapshot] | None:
    """Look at the clusters now if nobody leads; None: somebody does, and what is published is fresh."""
    return None if leader_of(scheduler.store) else asyncio.run(_look(scheduler))


async def _look(scheduler: Scheduler) -> Mapping[str, ClusterSnapshot]:
    async with watching(scheduler.config) as watch:
        await watch.step()
        return watch.snapshots()


def stale_note(store: JobStore, jobs: Iterable[Job]) -> Text | None:
    """Say how old all this is, where nobody keeps it up to date and it may have changed since."""
    open_jobs = [job for job in jobs if not job.final]
    if not open_jobs or leader_of(store) is not None:
        return None
    seen = [snapshot.observed_at for snapshot in store.load_snapshots().values() if snapshot.observed_at]
    how_old = f"{age(max(0.0, SystemClock().now() - max(seen)))} ago" if seen else "never"
    return Text(
        f"No scheduler is running; the clusters were last looked at: {how_old}. "
        "`raymc wait ID` brings jobs up to date and on their way.",
        style="yellow",
    )
