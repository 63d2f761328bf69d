"""Dispatch: upload what the job needs, POST it, write down what came of it.

The intent (cluster, Ray's id, environment) is in the store before anything is sent. An unknown outcome is
looked up by that id, never sent under a new one.
"""

from __future__ import annotations

from ray_multicluster_scheduler.engine.board import Board
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.errors import (
    ClusterBadAnswer,
    ClusterError,
    ClusterRefused,
    ClusterTimeout,
    PackageProblem,
    RemoteJobExists,
    RemoteJobNotFound,
)
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.model.job import Job, Target
from ray_multicluster_scheduler.model.remote import RemoteJob, RemoteSubmit
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.packages.runtime_env import package_names
from ray_multicluster_scheduler.packages.upload import Uploader
from ray_multicluster_scheduler.policy.moves import back_to_queue, move
from ray_multicluster_scheduler.policy.remote_request import JOB, ORIGIN, compose_submit
from ray_multicluster_scheduler.ports import RayApi

#: A cluster that could not be reached is tried again soon; the watch decides whether it still counts.
RETRY_UNSENT_S = 1.0


class Sender:
    """Sends placed jobs to one cluster."""

    def __init__(self, context: EngineContext, board: Board, spec: ClusterSpec, api: RayApi) -> None:
        self._context = context
        self._board = board
        self._spec = spec
        self._api = api
        self._uploader = Uploader(api, context.packages)

    async def send(self, job: Job, *, look_first: bool) -> str | None:
        """Send one job; `look_first` when an earlier send may have arrived.

        Leaves the job as it is when the outcome is unknown: the next look at the cluster tells. Returns
        why Ray refused it this time (it may take it later), else None.
        """
        request = compose_submit(
            job.submission_id,
            job.spec,
            job.attempt,
            self._spec,
            self._context.config.clusters,
            origin=self._context.store.store_id,
        )
        try:
            await self._send(job, request, look_first=look_first)
        except (ClusterTimeout, ClusterBadAnswer):
            return None  # it may be there, now or soon: the next look at this id tells
        except ClusterRefused as error:
            return await self._refused(job, error)
        except ClusterError as error:
            await self._unsent(job, f"not sent: {error}", delay_s=RETRY_UNSENT_S)
        except PackageProblem as error:
            await self._board.apply([move(job, JobState.FAILED, f"cannot be sent: {error}")])
        return None

    async def _send(self, job: Job, request: RemoteSubmit, *, look_first: bool) -> None:
        if look_first and await self._adopted(job):
            return
        await self._uploader.ensure(package_names(request.runtime_env))
        current = self._board.get(job.submission_id)
        if current is None or current.attempt != job.attempt or current.target is Target.STOPPED:
            return  # stopped meanwhile: the next look ends it without a start
        self._context.crash_point("send:before-post")
        try:
            await self._api.submit_job(request)
        except RemoteJobExists:
            if not await self._adopted(job):
                raise
            return
        self._context.crash_point("send:after-post")
        await self._accepted(job, f"cluster {self._spec.name!r} accepted it")

    async def _adopted(self, job: Job) -> bool:
        """Look the id up; take the job over when it is there and ours."""
        assert job.remote_id is not None
        try:
            remote = await self._api.get_job(job.remote_id)
        except RemoteJobNotFound:
            return False
        if not self._is_ours(job, remote):
            reason = (
                f"cluster {self._spec.name!r} has a job {job.remote_id!r} that is not ours: "
                "the next attempt gets another id"
            )
            await self._unsent(job, reason, delay_s=0.0)
            return True
        await self._accepted(job, f"cluster {self._spec.name!r} was found to have it")
        return True

    def _is_ours(self, job: Job, remote: RemoteJob) -> bool:
        ours = self._context.store.store_id, job.submission_id
        return (remote.metadata.get(ORIGIN), remote.metadata.get(JOB)) == ours

    async def _accepted(self, job: Job, reason: str) -> None:
        changes = {"seen_at": self._context.clock.now()}
        await self._board.apply([move(job, JobState.SUBMITTED, reason, **changes)])

    async def _unsent(self, job: Job, reason: str, *, delay_s: float) -> None:
        """Put a job back of which nothing was executed; one that was silent before stays so."""
        if job.state is JobState.PLACED:
            now = self._context.clock.now()
            await self._board.apply([back_to_queue(job, reason, delay_s=delay_s, now=now)])

    async def _refused(self, job: Job, error: ClusterRefused) -> str | None:
        """A 4xx is for good; a 5xx may have left something behind, so it is looked up before a resend."""
        if error.status >= 500 or error.status == 429:
            return error.detail
        await self._board.apply([move(job, JobState.FAILED, f"refused for good: {error.detail}")])
        return None
