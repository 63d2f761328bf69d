"""Forget ended jobs: on their clusters as far as those answer, and here for good."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ray_multicluster_scheduler.asyncio_tools import together
from ray_multicluster_scheduler.core.lifecycle.attempt_request import is_ours
from ray_multicluster_scheduler.errors import ClusterError
from ray_multicluster_scheduler.model.access import AuditEntry
from ray_multicluster_scheduler.model.execution import RAY_JOBS
from ray_multicluster_scheduler.model.job import Attempt, Job
from ray_multicluster_scheduler.ports import Connections, Executor
from ray_multicluster_scheduler.service.tail import Reach
from ray_multicluster_scheduler.store_ports import JobStore


def delete(reach: Reach, store: JobStore, submission_ids: Sequence[str], *, audit: AuditEntry) -> None:
    """Delete jobs, all or none; see `JobStore.delete` for what is refused.

    The clusters come first: as soon as an id is free here, another job may get it there. A job that a silent
    cluster still has is told from the new one by its number (`core/lifecycle/attempt_request.is_ours`).
    """
    jobs = store.get_many(submission_ids)
    if len(jobs) == len(set(submission_ids)) and all(job.final for job in jobs.values()):
        tried = [(job, attempt) for job in jobs.values() for attempt in store.attempts(job.submission_id)]
        reach(lambda connections: _forget_all(connections, tried, origin=store.store_id)).result()
    store.delete(submission_ids, audit=audit)


async def _forget_all(connections: Connections, tried: Sequence[tuple[Job, Attempt]], *, origin: str) -> None:
    await together(
        _forget(connections[attempt.cluster].executor, job, attempt.remote_id, origin=origin)
        for job, attempt in tried
        if attempt.cluster in connections and attempt.executor == RAY_JOBS
    )


async def _forget(executor: Executor, job: Job, remote_id: str, *, origin: str) -> None:
    with suppress(ClusterError):
        if is_ours(await executor.get(remote_id), job, origin=origin):
            await executor.delete(remote_id)
