"""Sweep: stop what carries our origin on a cluster but is no live attempt. Others' jobs are never touched."""

from __future__ import annotations

import logging

from ray_multicluster_scheduler.engine.board import Board
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.errors import ClusterError
from ray_multicluster_scheduler.model.remote import RemoteJob
from ray_multicluster_scheduler.policy.remote_request import ATTEMPT, JOB, ORIGIN

log = logging.getLogger(__name__)


class Sweeper:
    """Stops attempts that came back after they were replaced, and those that nobody waits for."""

    def __init__(self, context: EngineContext, board: Board) -> None:
        self._context = context
        self._board = board

    async def sweep(self, cluster: str, listed: tuple[RemoteJob, ...]) -> int:
        """Stop the strays among the jobs that a cluster has just listed; return how many were stopped."""
        live = {job.remote_id for job in self._board.on(cluster)}
        strays = [
            remote
            for remote in listed
            if not remote.status.final
            and remote.metadata.get(ORIGIN) == self._context.store.store_id
            and remote.submission_id not in live
        ]
        return sum([await self._stop(cluster, remote) for remote in strays])

    async def _stop(self, cluster: str, remote: RemoteJob) -> bool:
        try:
            stopped = await self._context.apis[cluster].stop_job(remote.submission_id)
        except ClusterError as error:
            log.warning("stray not stopped", extra={"job": remote.submission_id, "why": str(error)})
            return False
        if stopped:
            await self._record(cluster, remote)
        return stopped

    async def _record(self, cluster: str, remote: RemoteJob) -> None:
        """Write down that a former attempt was alive after all; its result is never the job's result."""
        job_id, number = remote.metadata.get(JOB, ""), remote.metadata.get(ATTEMPT, "")
        context = self._context
        known = await context.offload(context.store.get_many, [job_id])
        if job_id not in known or not number.isdigit():
            return
        reason = f"attempt {number} was found alive on {cluster!r} after it was given up, and was stopped"
        await context.offload(
            context.store.mark_attempt,
            job_id,
            int(number),
            outcome="SUPERSEDED",
            reason=reason,
            epoch=self._board.lease.epoch,
            now=context.clock.now(),
        )
