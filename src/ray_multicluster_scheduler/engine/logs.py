"""Reading the end of each job's log, which is kept so that history outlives the cluster."""

from __future__ import annotations

import asyncio
import logging
import re

from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.errors import ClusterError
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.ports import RayApi

log = logging.getLogger(__name__)

#: Logs of one cluster that are read at once: each may be large, and many jobs can end together.
AT_ONCE = 4
#: How a log begins whose own beginning was cut; see `bounded`.
_CUT = re.compile(r"\A\[the first (\d+) bytes of this log were not kept\]\n")


class LogReader:
    """Reads logs of one cluster."""

    def __init__(self, context: EngineContext, api: RayApi) -> None:
        self._context = context
        self._api = api
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def read(self, job: Job) -> str | None:
        """Return the end of a job's log; None when it cannot be had: the job still ends."""
        if job.remote_id is None:
            return None
        async with self._slots:
            try:
                text = await self._api.job_logs(job.remote_id)
            except ClusterError as error:
                log.warning("log not kept", extra={"job": job.submission_id, "why": str(error)})
                return None
        return bounded(text, self._context.settings.log_keep_bytes)


def bounded(text: str, keep_bytes: int) -> str:
    """Return the end of a log, saying so when the beginning was cut."""
    raw = text.encode()
    if len(raw) <= keep_bytes:
        return text
    cut = len(raw) - keep_bytes
    while cut < len(raw) and raw[cut] & 0xC0 == 0x80:  # not in the middle of a character
        cut += 1
    return f"[the first {cut} bytes of this log were not kept]\n" + raw[cut:].decode()


def missing_bytes(kept: str) -> int:
    """Return how much of a log was cut before it was kept."""
    note = _CUT.match(kept)
    return int(note[1]) if note else 0


def without_note(kept: str) -> str:
    """Return a kept log without the line that says what was cut."""
    return _CUT.sub("", kept, count=1)
