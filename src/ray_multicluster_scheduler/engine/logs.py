"""Reading the end of each job's log, which is kept so that history outlives the cluster."""

from __future__ import annotations

import asyncio
import logging

from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.errors import ClusterBadAnswer, ClusterError, ClusterTimeout
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.ports import Executor
from ray_multicluster_scheduler.text.visible import visible

log = logging.getLogger(__name__)

#: Logs of one cluster that are read at once: each may be large, and many jobs can end together.
AT_ONCE = 4
#: Between two tries to read a log whose answer broke off before it began.
AGAIN_S = 1.0
TRIES = 2


class LogReader:
    """Reads logs of one cluster."""

    def __init__(self, context: EngineContext, executor: Executor) -> None:
        self._context = context
        self._executor = executor
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def read(self, job: Job) -> str | None:
        """Return the end of a job's log; None when it cannot be had: the job still ends."""
        if job.remote_id is None:
            return None
        async with self._slots:
            for tries in range(1, TRIES + 1):
                try:
                    return await self._executor.log(
                        job.remote_id, last_bytes=self._context.settings.log_keep_bytes
                    )
                except ClusterError as error:
                    if tries == TRIES or not isinstance(error, (ClusterTimeout, ClusterBadAnswer)):
                        log.warning("log of %s not kept: %s", job.submission_id, visible(str(error)))
                        return None
                await asyncio.sleep(AGAIN_S)
        return None
