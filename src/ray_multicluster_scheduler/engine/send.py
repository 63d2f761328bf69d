"""Sends one attempt: uploads what it needs, starts it, and says what came of it.

The intent (cluster, id there, environment) is in the store before anything is sent. An unknown outcome is
looked up by that id, never sent under a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from ray_multicluster_scheduler.core.instructions import SendAttempt, WriteMoves
from ray_multicluster_scheduler.core.lifecycle.attempt_request import is_ours
from ray_multicluster_scheduler.core.lifecycle.transitions import SendOutcome, SendResult, move
from ray_multicluster_scheduler.core.supervisor import NOTE
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.environment.compose import has_overlay, with_result_place, with_token
from ray_multicluster_scheduler.environment.setup_failure import SETTING_UP, setup_summary
from ray_multicluster_scheduler.errors import (
    ClusterBadAnswer,
    ClusterError,
    ClusterRefused,
    ClusterTimeout,
    ClusterUnreachable,
    PackageProblem,
    RemoteJobExists,
    RemoteJobNotFound,
    StoreError,
)
from ray_multicluster_scheduler.executors.contract import Executor
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.model.execution import StartRequest
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.packages.runtime_env import package_names
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.packages.to_cluster import (
    OwnPackage,
    Uploader,
    takes_own_package,
    with_overlay_code,
    with_own_package,
)

#: The cluster read the request and does not want it: it would say the same again. Any other error status may
#: come from something in between, such as a proxy whose backend is starting.
FOR_GOOD = frozenset({400, 413, 422})

#: How long a cluster is trusted to have this package. Ray keeps what nothing refers to for ten minutes.
ASK_AGAIN_S = 300.0


class _NotPacked(Exception):
    """The packages that go along cannot be read or written on this machine now."""


class Sender:
    """Sends attempts to one cluster. `is_wanted` is asked last of all, `write` completes what is on disk."""

    def __init__(
        self,
        context: EngineContext,
        spec: ClusterSpec,
        *,
        is_wanted: Callable[[Job], bool],
        write: Callable[[WriteMoves], Awaitable[None]],
    ) -> None:
        connection = context.connections[spec.name]
        self._context = context
        self._spec = spec
        self._uploader = Uploader(connection.packages, context.packages)
        self._own_package = OwnPackage(context.packages)
        #: The session of the head that has this package, and how long it does without being asked.
        self._own_is_there: str | None = None
        self._own_kept_until = 0.0
        self._is_wanted = is_wanted
        self._write = write

    async def send(self, wanted: SendAttempt) -> SendOutcome:
        """Send one attempt, and say what came of it."""
        try:
            return await self._send(wanted)
        except (ClusterTimeout, ClusterBadAnswer):
            return SendOutcome(result=SendResult.UNKNOWN)  # it may be there, now or soon
        except ClusterRefused as error:
            for_good = error.status in FOR_GOOD
            result = SendResult.REFUSED_FOR_GOOD if for_good else SendResult.REFUSED
            return SendOutcome(result=result, detail=error.detail)
        except ClusterError as error:  # no connection, or no permission: this time nothing was executed
            if wanted.is_new:  # look at it first, or the job would be placed here again at once
                await self._context.watch.probe(self._spec.name)
            return SendOutcome(result=SendResult.UNREACHABLE, detail=str(error))
        except PackageProblem as error:
            return SendOutcome(result=SendResult.PACKAGE_LOST, detail=str(error))
        except _NotPacked as error:
            return SendOutcome(result=SendResult.NOT_PACKED, detail=str(error))

    async def _send(self, wanted: SendAttempt) -> SendOutcome:
        job = wanted.job
        if not wanted.is_new and (there := await self._look_up(job)) is not None:
            return there
        try:
            request, own_package = await self._packed(job, wanted.request)
            result_place = await self._result_place(job)
        except (ClusterTimeout, ClusterBadAnswer) as error:
            if not wanted.is_new:
                raise
            # Packages and questions only, so nothing was started.
            raise ClusterUnreachable(self._spec.name, error.detail) from error
        if not wanted.is_new or request is not wanted.request:
            await self._write_down(job, request)
        if not self._is_wanted(job):
            return SendOutcome(result=SendResult.NOT_WANTED)
        self._context.crash_point("send:before-post")
        try:
            await self._executor(job).start(self._completed(job, request, own_package, result_place))
        except RemoteJobExists:
            there = await self._look_up(job)
            if there is None:
                raise
            return there
        self._context.crash_point("send:after-post")
        return self._accepted(f"cluster {self._spec.name!r} accepted it{_and_sets_up(request)}")

    def _completed(
        self, job: Job, request: StartRequest, own_package: str | None, result_place: str | None
    ) -> StartRequest:
        """Return the request with the job's token, its result's place and this package.

        They are added last, and written down nowhere: the token is a secret, and the others are no part of
        the environment that anybody asked for.
        """
        env = with_token(request.runtime_env, self._spec, self._context.job_token(job))
        if own_package is not None:
            env = with_own_package(env, f"gcs://{own_package}")
        if result_place is not None:
            env = with_result_place(env, result_place)
        return replace(request, runtime_env=env)

    async def _result_place(self, job: Job) -> str | None:
        """Return the path of the file in which the program may leave a result, if there can be one."""
        if not self._context.executors.can(job.spec.executor).leaves_result:
            return None
        assert job.remote_id is not None
        session_name = self._context.watch.snapshot(self._spec.name).session_name
        return await self._executor(job).result_place(job.remote_id, session_name=session_name)

    async def _packed(self, job: Job, request: StartRequest) -> tuple[StartRequest, str | None]:
        """Return the request with the code of its overlay, and the name of this package if that goes along.

        All packages are on the cluster then.
        """
        carries = self._spec.ship_package and self._context.executors.can(job.spec.executor).carries_package
        session_name = self._context.watch.snapshot(self._spec.name).session_name
        now = self._context.clock.monotonic()
        # A job that is tried again may have missed it. Ray keeps what it was asked for for ten minutes.
        is_known = session_name is not None and session_name == self._own_is_there
        is_there = is_known and job.attempt == 1 and now < self._own_kept_until
        self._context.crash_point("send:before-upload")
        try:
            packed = await pack(
                request,
                self._uploader,
                self._context.packages,
                self._own_package if carries else None,
                own_is_there=is_there,
            )
        except (OSError, StoreError) as problem:  # of the package files: a full disk, a file without rights
            raise _NotPacked(f"its packages: {problem}") from problem
        if packed[1] is not None and not is_there:
            self._own_is_there, self._own_kept_until = session_name, now + ASK_AGAIN_S
        return packed

    async def _write_down(self, job: Job, request: StartRequest) -> None:
        """Keep with the attempt what is really sent, where that is not what was written at its placement."""
        attempts = await self._context.offload(self._context.store.history.attempts, job.submission_id)
        sent = {"runtime_env": dict(request.runtime_env), "entrypoint": request.entrypoint}
        if any(getattr(attempts[-1], name) != value for name, value in sent.items()):
            note = move(job, job.state, "its environment was completed for this cluster before it was sent")
            moves = [replace(note, attempt_changes=sent)]
            await self._write(WriteMoves(moves=moves, known={job.submission_id: job}, occasion=NOTE))

    def _executor(self, job: Job) -> Executor:
        return self._context.executor(self._spec.name, job.spec.executor)

    async def _look_up(self, job: Job) -> SendOutcome | None:
        """Look whether the cluster has the attempt; None: it has not."""
        assert job.remote_id is not None
        try:
            sighting = await self._executor(job).get(job.remote_id)
        except RemoteJobNotFound:
            return None
        if is_ours(sighting, job, origin=self._context.store.store_id):
            return self._accepted(f"cluster {self._spec.name!r} was found to have it")
        detail = (
            f"cluster {self._spec.name!r} has a job {job.remote_id!r} that is not ours; "
            "the next attempt gets another id"
        )
        return SendOutcome(result=SendResult.ID_TAKEN, detail=detail)

    @staticmethod
    def _accepted(detail: str) -> SendOutcome:
        return SendOutcome(result=SendResult.ACCEPTED, detail=detail)


async def pack(
    request: StartRequest,
    uploader: Uploader,
    packages: PackageStore,
    own_package: OwnPackage | None,
    *,
    own_is_there: bool = False,
) -> tuple[StartRequest, str | None]:
    """Bring all packages of a request to its cluster, and this package too if it is given and may go along.

    Return the request with the code of its overlay, and the name of this package if that goes along. The
    cluster is not asked for this package if `own_is_there`.
    """
    own_name = None
    if has_overlay(request.runtime_env):
        env = await asyncio.to_thread(with_overlay_code, request.runtime_env, packages)
        request = replace(request, runtime_env=env)
    if own_package is not None and takes_own_package(request.runtime_env):
        own_name = await asyncio.to_thread(own_package.name)
    names = package_names(request.runtime_env)
    await uploader.ensure(names if own_name is None or own_is_there else [own_name, *names])
    return request, own_name


def _and_sets_up(request: StartRequest) -> str:
    """Say that the cluster has something to install before the program starts, which may take minutes."""
    what = setup_summary(request.runtime_env)
    return f" and is {SETTING_UP} ({what})" if what else ""
