"""A job's log as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from ray_multicluster_scheduler.client.current import working_scheduler
from ray_multicluster_scheduler.service.query import one_job


def tail_job_logs(submission_id: str) -> Iterator[str]:
    """Yield the log of a job in pieces as it grows; ends only when the job has ended.

    A broken connection is taken up again where it broke off; when the job is tried again elsewhere, a line
    says so and the new attempt's log follows. Raises `JobNotFound` at once for an unknown id.
    """
    service = working_scheduler().service
    job = one_job(service, submission_id)
    return service.tail(job.submission_id)


async def tail_job_logs_async(submission_id: str) -> AsyncIterator[str]:
    """Like the blocking version, for asyncio: no thread waits."""
    service = (await asyncio.to_thread(working_scheduler)).service
    job = await asyncio.to_thread(one_job, service, submission_id)
    async for piece in service.tail_async(job.submission_id):
        yield piece
