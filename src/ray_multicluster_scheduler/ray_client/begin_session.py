"""Begins a session: from the first message of a client to its place on a cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import aclosing

from ray_multicluster_scheduler.errors import SchedulerError, WaitTimeout
from ray_multicluster_scheduler.model.client_session import SessionClient
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.ray_client.messages import Init
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.service.local_service import LocalService
from ray_multicluster_scheduler.service.option_keys import PREFIX
from ray_multicluster_scheduler.service.request import JobRequest

log = logging.getLogger(__name__)

#: Keys of a client's metadata that are no options of a job.
CLIENT_RAY, CLIENT_PYTHON = "raymc.ray", "raymc.python"
#: Shown where a job has its command.
ENTRYPOINT = "ray.init (Ray Client)"
#: How long a session waits for room if its program does not say: as long as Ray Client tries to connect.
WAIT_S = 30.0
#: If the server dies while a session waits, the leader ends it a little later.
SPARE_S = 15.0


class SessionRefused(Exception):
    """The session cannot begin. The message is for the program."""


def session_request(
    metadata: Mapping[str, str], init: Init, *, user: str, submission_id: str, address: str
) -> tuple[JobRequest, SessionClient]:
    """Return what a client asks for: its options come as keys of the metadata, as with Ray's jobs."""
    own = {name: value for name, value in metadata.items() if name.startswith(PREFIX)}
    client = SessionClient(
        address=address, ray=own.pop(CLIENT_RAY, None), python=own.pop(CLIENT_PYTHON, None)
    )
    request = JobRequest(
        entrypoint=ENTRYPOINT,
        user=user,
        submission_id=submission_id,
        runtime_env=init.runtime_env,
        metadata=own,
    )
    return request, client


class SessionQueue:
    """Lets sessions wait for a cluster."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    async def placed(self, service: LocalService, request: JobRequest, client: SessionClient) -> Job:
        """Let a session wait in the queue until it has a cluster; raises `SessionRefused`."""
        backstop = request.replaced(queue_timeout_s=_wait_s(request) + SPARE_S)
        try:
            view = await asyncio.to_thread(service.open_session, backstop, client)
            return await self._wait(service, view.submission_id, _wait_s(request), after=0)
        except SchedulerError as problem:
            raise SessionRefused(str(problem)) from None

    async def placed_again(self, service: LocalService, request: JobRequest, job: Job, reason: str) -> Job:
        """Let a session wait for another cluster, because its own cannot begin it; as `placed`."""
        update = self._scheduler.store.sessions.update
        await asyncio.to_thread(update, [job.submission_id], failure=reason, refused_attempt=job.attempt)
        return await self._wait(service, job.submission_id, _wait_s(request), after=job.attempt)

    async def _wait(self, service: LocalService, submission_id: str, wait_s: float, *, after: int) -> Job:
        changes = service.changes_async([submission_id], timeout_s=wait_s, tick_s=wait_s)
        try:
            async with aclosing(changes):
                async for views in changes:
                    view = views[submission_id]
                    if view.final:
                        raise SessionRefused(view.message)
                    if view.state in {JobState.SUBMITTED, JobState.RUNNING} and view.attempt > after:
                        break
        except WaitTimeout:
            why = await asyncio.to_thread(service.explain, submission_id)
            await self.give_up(service, submission_id, f"no cluster had room within {wait_s:g} s")
            raise SessionRefused(
                f"no cluster has room for this session, and it has waited for {wait_s:g} s "
                f"(raymc.queue_timeout): {why.why}"
            ) from None
        except asyncio.CancelledError:
            await self.give_up(service, submission_id, "its program went away")
            raise
        return await asyncio.to_thread(self._scheduler.store.get, submission_id)

    async def give_up(self, service: LocalService, submission_id: str, reason: str) -> None:
        """End a session that waits."""
        await asyncio.shield(asyncio.to_thread(service.stop, [submission_id], reason=reason))


def _wait_s(request: JobRequest) -> float:
    return WAIT_S if request.queue_timeout_s is None else request.queue_timeout_s
