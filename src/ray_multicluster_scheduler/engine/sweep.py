"""Sweep: stop what carries our origin on a cluster and was given up. Others' jobs are never touched.

Whether an attempt was given up is read from the store after the cluster has listed its jobs, never from the
leader's memory: every attempt is in the store before it is sent, so even a leader that has lost its lease
without noticing cannot take a job of its successor for a stray. A job that the store does not know at all is
left alone too: then it is the store that is not up to date.
"""

from __future__ import annotations

import logging

from ray_multicluster_scheduler.engine.board import Board
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.engine.stops import Stops
from ray_multicluster_scheduler.model.job import Attempt, Job
from ray_multicluster_scheduler.model.remote import RemoteJob
from ray_multicluster_scheduler.policy.remote_request import JOB, ORIGIN

log = logging.getLogger(__name__)

#: How an attempt that came back alive after it was replaced is recorded.
SUPERSEDED = "SUPERSEDED"


class Sweeper:
    """Stops attempts that came back after they were given up on one cluster."""

    def __init__(self, context: EngineContext, board: Board, cluster: str, stops: Stops) -> None:
        self._context = context
        self._board = board
        self._cluster = cluster
        self._stops = stops
        self._told: set[str] = set()

    async def sweep(self, listed: tuple[RemoteJob, ...]) -> frozenset[str]:
        """Stop the strays among the jobs that the cluster has just listed; return the ids of suspects."""
        live = {job.remote_id for job in self._board.on(self._cluster)}
        suspects = {
            remote.submission_id: remote
            for remote in listed
            if not remote.status.final
            and remote.metadata.get(ORIGIN) == self._context.store.store_id
            and remote.submission_id not in live
        }
        self._told &= suspects.keys()
        for remote in suspects.values():
            await self._examine(remote)
        return frozenset(suspects)

    async def _examine(self, remote: RemoteJob) -> None:
        found = await self._context.offload(self._find, remote)
        if found is None:
            self._say_unknown(remote)
            return
        job, attempt = found
        if attempt.outcome is None:
            return
        self._context.crash_point("sweep:before-stop")
        if await self._stops.ask(remote.submission_id) and remote.submission_id not in self._told:
            await self._record(job, attempt)
            self._told.add(remote.submission_id)

    def _find(self, remote: RemoteJob) -> tuple[Job, Attempt] | None:
        """Read the attempt from the store as it is now."""
        store, job_id = self._context.store, remote.metadata.get(JOB, "")
        attempts = [each for each in store.attempts(job_id) if each.remote_id == remote.submission_id]
        return (store.get(job_id), attempts[0]) if attempts else None

    def _say_unknown(self, remote: RemoteJob) -> None:
        if remote.submission_id not in self._told:
            self._told.add(remote.submission_id)
            log.warning(
                "a job carries our origin, but the store has no such attempt; it is left alone",
                extra={"cluster": self._cluster, "job": remote.submission_id},
            )

    async def _record(self, job: Job, attempt: Attempt) -> None:
        """Write down that a former attempt was alive after all; its result is never the job's result."""
        replaced = attempt.number < job.attempt
        overlap = f"; it may have run beside attempt {job.attempt}" if replaced else ""
        await self._context.offload(
            self._context.store.mark_attempt,
            attempt.submission_id,
            attempt.number,
            outcome=SUPERSEDED if replaced else attempt.outcome or "",
            reason=f"attempt {attempt.number} was found alive on {self._cluster!r} after it was given up, "
            f"and is being stopped{overlap}",
            epoch=self._board.lease.epoch,
            now=self._context.clock.now(),
        )
