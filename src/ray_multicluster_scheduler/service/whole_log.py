"""The log of a job over all its attempts, as far as it is there now."""

from __future__ import annotations

import asyncio

from ray_multicluster_scheduler.errors import ClusterError
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.ports import Connections
from ray_multicluster_scheduler.service.tail import ON_CLUSTER, Reach, next_attempt
from ray_multicluster_scheduler.store_ports import JobStore


async def whole_log(reach: Reach, store: JobStore, job: Job) -> str:
    """Return the text that following the log would have yielded so far.

    The logs of ended attempts are in the store. Only the cluster of the current attempt is asked, and no
    thread waits for it.
    """
    text = ""
    for number in range(1, job.attempt + 1):
        if text:
            text += next_attempt(number - 1)
        kept = await asyncio.to_thread(store.load_log, job.submission_id, number)
        if kept is None and number == job.attempt and job.state in ON_CLUSTER:
            kept = await _read(reach, job)
        text += kept or ""
    return text


async def _read(reach: Reach, job: Job) -> str:
    async def read(connections: Connections) -> str:
        connection = connections.get(job.cluster or "")  # None: it is no longer in clusters.yaml
        if connection is None or job.remote_id is None or job.spec.is_session:
            return ""
        return await connection.executor.log(job.remote_id)

    try:
        text: str = await asyncio.wrap_future(reach(read))
    except ClusterError:
        return ""
    return text
