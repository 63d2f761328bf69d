"""Compares the clients of a server with the store: which sessions have ended, and which ones should."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from ray_multicluster_scheduler.asyncio_tools import Background
from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.model.client_session import Session
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.ray_client.connected_client import ConnectedClient
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.service.callers import Callers
from ray_multicluster_scheduler.store_ports import JobStore

log = logging.getLogger(__name__)

#: How often sessions are compared with the store, and how often it is told that programs still wait.
COMPARE_S = 1.0
BEAT_S = 10.0


async def stored_sessions(store: JobStore, submission_ids: Sequence[str]) -> dict[str, tuple[Job, Session]]:
    """Return those of these sessions that there are, each with its job."""

    def read() -> dict[str, tuple[Job, Session]]:
        jobs, sessions = store.get_many(submission_ids), store.sessions.get_many(submission_ids)
        return {name: (job, sessions[name]) for name, job in jobs.items() if name in sessions}

    return await asyncio.to_thread(read)


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
        store = self._scheduler.store
        for name, (job, session) in (await stored_sessions(store, list(by_id))).items():
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
            await asyncio.to_thread(store.sessions.update, waiting, alive_at=self._scheduler.clock.now())

    async def _end_without_token(self, clients: Iterable[ConnectedClient]) -> None:
        """Stop the sessions of tokens that were revoked or have expired."""
        for client in clients:
            if client.ended is None and not await self._callers.is_valid(client.credential):
                client.end(reason := "its token is not valid any more")
                stop = self._scheduler.service.stop
                await asyncio.to_thread(stop, [client.submission_id], reason=reason)
                self.in_background(client.clean_up())
