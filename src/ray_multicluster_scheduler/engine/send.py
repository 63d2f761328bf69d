"""Dispatch: upload what the job needs, POST it, write down what came of it.

The intent (cluster, Ray's id, environment) is in the store before anything is sent. An unknown outcome is
looked up by that id, never sent under a new one.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ray_multicluster_scheduler.core.lifecycle.attempt_request import compose_submit, is_ours
from ray_multicluster_scheduler.core.lifecycle.transitions import back_to_queue, move
from ray_multicluster_scheduler.engine.board import Board
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.environment.job_address import with_token
from ray_multicluster_scheduler.environment.overlay import has_overlay
from ray_multicluster_scheduler.environment.to_set_up import SETTING_UP, to_set_up
from ray_multicluster_scheduler.errors import (
    ClusterBadAnswer,
    ClusterError,
    ClusterRefused,
    ClusterTimeout,
    InvalidRuntimeEnv,
    PackageProblem,
    RemoteJobExists,
    RemoteJobNotFound,
    StoreError,
)
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.model.execution import StartRequest
from ray_multicluster_scheduler.model.job import Job, Target
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.packages.overlay import with_overlay_code
from ray_multicluster_scheduler.packages.runtime_env import package_names
from ray_multicluster_scheduler.packages.upload import Uploader
from ray_multicluster_scheduler.ports import ClusterConnection

#: A cluster that could not be reached is tried again soon; the watch decides whether it still counts.
RETRY_UNSENT_S = 1.0
#: Ray read the request and does not want it: it would say the same again. Any other error status may come
#: from something in between, such as a proxy whose backend is starting.
FOR_GOOD = frozenset({400, 413, 422})
_DOUBLINGS = 10


class _NotPacked(Exception):
    """The packages that go along cannot be read or written on this machine now."""


class Sender:
    """Sends placed jobs to one cluster."""

    def __init__(
        self, context: EngineContext, board: Board, spec: ClusterSpec, connection: ClusterConnection
    ) -> None:
        self._context = context
        self._board = board
        self._spec = spec
        self._executor = connection.executor
        self._uploader = Uploader(connection.packages, context.packages)

    async def send(self, job: Job, fresh: StartRequest | None) -> str | None:
        """Send one job: `fresh` is what was composed when it was placed; None: an earlier send may be there.

        Leaves the job as it is when the outcome is unknown: the next look at the cluster tells. Returns
        why Ray refused it this time (it may take it later), else None.
        """
        try:
            await self._send(job, fresh)
        except (ClusterTimeout, ClusterBadAnswer):
            return None  # it may be there, now or soon: the next look at this id tells
        except ClusterRefused as error:
            if error.status not in FOR_GOOD:
                return error.detail
            await self._board.apply([move(job, JobState.FAILED, f"refused for good: {error.detail}")])
        except ClusterError as error:  # no connection, or no permission: this time nothing was executed
            if fresh is not None:
                await self._context.watch.probe(self._spec.name)  # or it would be placed here again at once
                await self._back(job, f"not sent: {error}", delay_s=RETRY_UNSENT_S)
        except InvalidRuntimeEnv as error:  # the configuration has changed since the job was placed here
            await self._back(job, f"not sent: {error}", delay_s=0.0)
        except PackageProblem as error:
            await self._board.apply([move(job, JobState.FAILED, f"cannot be sent: {error}")])
        except _NotPacked as error:
            if fresh is not None:
                await self._back(job, f"not sent: {error}", delay_s=self._unpacked_delay_s(job))
        return None

    async def _send(self, job: Job, fresh: StartRequest | None) -> None:
        if fresh is None and await self._is_there(job):
            return
        request = await self._packed(fresh or self._composed(job))
        if request is not fresh:
            await self._write_down(job, request)
        if not self._still_wanted(job):
            return  # stopped meanwhile, or another one leads: the next look settles it without a start
        self._context.crash_point("send:before-post")
        try:
            await self._executor.start(self._with_token(job, request))
        except RemoteJobExists:
            if not await self._is_there(job):
                raise
            return
        self._context.crash_point("send:after-post")
        await self._accepted(job, f"cluster {self._spec.name!r} accepted it{_and_sets_up(request)}")

    def _with_token(self, job: Job, request: StartRequest) -> StartRequest:
        """Return the request with the job's token: added last, so that it is written down nowhere."""
        token = self._context.job_token(job)
        return replace(request, runtime_env=with_token(request.runtime_env, self._spec, token))

    def _composed(self, job: Job) -> StartRequest:
        """Compose the request anew: the same comes out as when the job was placed, with the same clusters."""
        return compose_submit(
            job.submission_id,
            job.spec,
            job.attempt,
            self._spec,
            self._context.config.clusters,
            origin=self._context.store.store_id,
            seq=job.seq,
        )

    async def _packed(self, request: StartRequest) -> StartRequest:
        """Return the request with the code that its overlay needs, and its packages on the cluster."""
        try:
            if has_overlay(request.runtime_env):
                env = await asyncio.to_thread(with_overlay_code, request.runtime_env, self._context.packages)
                request = replace(request, runtime_env=env)
            self._context.crash_point("send:before-upload")
            await self._uploader.ensure(package_names(request.runtime_env))
        except (OSError, StoreError) as problem:  # of the package files: a full disk, a file without rights
            raise _NotPacked(f"its packages: {problem}") from problem
        return request

    async def _write_down(self, job: Job, request: StartRequest) -> None:
        """Keep with the attempt what is really sent, where that is not what was written at its placement."""
        attempts = await self._context.offload(self._context.store.attempts, job.submission_id)
        sent = {"runtime_env": dict(request.runtime_env), "entrypoint": request.entrypoint}
        if any(getattr(attempts[-1], name) != value for name, value in sent.items()):
            note = move(job, job.state, "its environment was completed for this cluster before it was sent")
            await self._board.apply([replace(note, attempt_changes=sent)])

    def _unpacked_delay_s(self, job: Job) -> float:
        """Return the pause before the next try: it doubles with each attempt."""
        settings = self._context.settings
        doubled = settings.retry_delay_s * 2.0 ** min(job.attempt - 1, _DOUBLINGS)
        return min(settings.retry_max_delay_s, doubled)

    def _still_wanted(self, job: Job) -> bool:
        current = self._board.get(job.submission_id)
        return (
            self._board.leads()
            and current is not None
            and current.attempt == job.attempt
            and current.target is not Target.STOPPED
        )

    async def _is_there(self, job: Job) -> bool:
        """Look the id up; take over a job of ours, and leave an id that somebody else has taken."""
        assert job.remote_id is not None
        try:
            sighting = await self._executor.get(job.remote_id)
        except RemoteJobNotFound:
            return False
        if is_ours(sighting, job, origin=self._context.store.store_id):
            await self._accepted(job, f"cluster {self._spec.name!r} was found to have it")
        else:
            reason = (
                f"cluster {self._spec.name!r} has a job {job.remote_id!r} that is not ours; "
                "the next attempt gets another id"
            )
            await self._back(job, reason, delay_s=0.0)
        return True

    async def _accepted(self, job: Job, reason: str) -> None:
        seen_at = self._context.clock.now()
        await self._board.apply([move(job, JobState.SUBMITTED, reason, seen_at=seen_at)])

    async def _back(self, job: Job, reason: str, *, delay_s: float) -> None:
        """Put a job back into the queue of which nothing was executed."""
        now = self._context.clock.now()
        await self._board.apply([back_to_queue(job, reason, delay_s=delay_s, now=now)])


def _and_sets_up(request: StartRequest) -> str:
    """Say that Ray has something to install before the program starts, which may take minutes."""
    what = to_set_up(request.runtime_env)
    return f" and is {SETTING_UP} ({what})" if what else ""
