"""Begins a session: from the first message of a client to its place on a cluster."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import aclosing
from typing import Any

from ray_multicluster_scheduler.asyncio_tools import Background
from ray_multicluster_scheduler.errors import SchedulerError, StoreError, WaitTimeout
from ray_multicluster_scheduler.model.execution import SessionClient
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.ray_client.connected_client import ConnectedClient
from ray_multicluster_scheduler.ray_client.messages import Init
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.service.auth import Callers
from ray_multicluster_scheduler.service.request import PREFIX, JobRequest
from ray_multicluster_scheduler.service.service import LocalService

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
        update = self._scheduler.service.session_records.update
        await asyncio.to_thread(update, job.submission_id, failure=reason, refused_attempt=job.attempt)
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
        return await asyncio.to_thread(self._scheduler.service.session_records.job, submission_id)

    async def give_up(self, service: LocalService, submission_id: str, reason: str) -> None:
        """End a session that waits."""
        await asyncio.shield(asyncio.to_thread(service.stop, [submission_id], reason=reason))


def _wait_s(request: JobRequest) -> float:
    return WAIT_S if request.queue_timeout_s is None else request.queue_timeout_s


# Compares the clients of a server with the store: which sessions have ended, and which ones should.


#: How often sessions are compared with the store, and how often it is told that programs still wait.
COMPARE_S = 1.0
BEAT_S = 10.0


async def _logged(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except Exception:
        log.exception("cleaning up after a session has failed")


class SessionUpkeep:
    """Ends the clients whose sessions are over, and the sessions whose tokens are."""

    def __init__(
        self,
        scheduler: Scheduler,
        callers: Callers,
        clients: dict[str, ConnectedClient],
        background: Background,
    ) -> None:
        self._scheduler = scheduler
        self._callers = callers
        self._clients = clients
        self._background = background
        self._beat_at = 0.0

    async def run(self) -> None:
        """Compare until cancelled."""
        try:
            while True:
                await asyncio.sleep(COMPARE_S)
                try:
                    await self._compare()
                except StoreError as problem:
                    log.warning("the sessions cannot be compared with the store: %s", problem)
        finally:
            for client in self._clients.values():
                client.close()

    def in_background(self, work: Coroutine[Any, Any, object]) -> None:
        """Begin to clean up after a session. A bug there ends neither the server nor other sessions."""
        self._background.start(_logged(work))

    async def _compare(self) -> None:
        by_id = {client.submission_id: client for client in self._clients.values()}
        if not by_id:
            return
        records = self._scheduler.service.session_records
        for name, (job, session) in (await asyncio.to_thread(records.get_many, list(by_id))).items():
            client = by_id[name]
            if job.final:
                self._clients.pop(client.client_id, None)
                self.in_background(client.retire(job.reason, at_once=job.state is not JobState.SUCCEEDED))
            elif session.stop_requested and client.ended is None:
                client.end(job.stopped_because)
                self.in_background(client.clean_up())
        await self._end_without_token(by_id.values())
        waiting = [name for name, client in by_id.items() if not client.settled.is_set()]
        if waiting and time.monotonic() >= self._beat_at:
            self._beat_at = time.monotonic() + BEAT_S
            await asyncio.to_thread(records.still_wait, waiting)

    async def _end_without_token(self, clients: Iterable[ConnectedClient]) -> None:
        """Stop the sessions of tokens that were revoked or have expired."""
        for client in clients:
            if client.ended is None and not await self._callers.is_valid(client.credential):
                client.end(reason := "its token is not valid any more")
                stop = self._scheduler.service.stop
                await asyncio.to_thread(stop, [client.submission_id], reason=reason)
                self.in_background(client.clean_up())
