"""Starts the helper process of a session on its cluster, and checks that it is there.

Heads give each session a helper process with a port of its own, which they choose seconds before it is bound.
Two heads on one machine may choose the same one; then the session is on the other cluster. So the driver of
the helper process is looked up on the cluster that was chosen, by what we have written into its metadata.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, nullcontext, suppress
from typing import Any

from ray_multicluster_scheduler.asyncio_tools import within
from ray_multicluster_scheduler.core.lifecycle.attempt_request import (
    ATTEMPT,
    CLAIM,
    JOB,
    ORIGIN,
    SEQ,
    USER,
    claim_text,
)
from ray_multicluster_scheduler.environment.setup_failure import setup_error
from ray_multicluster_scheduler.errors import ClusterError
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.ray_client import messages
from ray_multicluster_scheduler.ray_client.connected_client import CLEANUP_S, ConnectedClient
from ray_multicluster_scheduler.ray_client.messages import Init
from ray_multicluster_scheduler.ray_client.sessions import SessionRefused
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.tasks.wire.sessions import BAD_ENVIRONMENT
from raymc_relay.errors import ConnectionFailed, RelayError
from raymc_relay.stream import Stream

log = logging.getLogger(__name__)

#: On one cluster. A helper process that did not start blocks the id of its client there until Ray looks after
#: it, twice a minute, or for ever: then only another cluster can begin the session.
TRIES = 5
PAUSE_S = 2.0
#: Ray's words for a helper process that did not start or is that of another cluster: its port was taken.
NOT_STARTED = ("Starting Ray client server failed", "start_specific_server", "called ray.init twice")
MOST_REPLY_BYTES = 2**20


class NotBegun(Exception):
    """This cluster cannot begin the session; another one may."""


class _NotStarted(Exception):
    """There is no helper process, or not where it should be; the next one may be right."""


class HelperStarter:
    """Starts the helper processes of one server's sessions."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        #: The clusters where a helper process was started before, with their Ray sessions.
        self._warm: set[tuple[str, str | None]] = set()
        self._warming = asyncio.Lock()
        self._hosts: dict[str, asyncio.Lock] = {}

    async def start(
        self, client: ConnectedClient, job: Job, init: Init, call: Stream
    ) -> tuple[Stream, bytes]:
        """Return the open data path and the answer to Init; raises `NotBegun` or `SessionRefused`."""
        records = self._scheduler.service.session_records
        composed = await asyncio.to_thread(records.environment, job.submission_id)
        marks = {
            ORIGIN: self._scheduler.store_id,
            JOB: job.submission_id,
            ATTEMPT: str(job.attempt),
            SEQ: str(job.seq),
            USER: job.spec.user,
            CLAIM: claim_text(job.spec.claim),
        }
        message = init.composed(composed, marks)
        for left in reversed(range(TRIES)):
            try:
                async with self._alone(job.cluster or ""):
                    await self._warm_up(client, job.cluster or "")
                    return await self._start_once(client, job, message, marks, call)
            except ConnectionFailed as problem:
                raise NotBegun(f"cluster {job.cluster!r} cannot be reached: {problem}") from None
            except (_NotStarted, RelayError, ClusterError) as problem:
                if not left:
                    raise NotBegun(f"cluster {job.cluster!r} did not begin it: {problem}") from None
                log.warning("session %s is begun again: %s", job.submission_id, problem)
            await asyncio.sleep(PAUSE_S)
        raise AssertionError("the last try returns or raises")

    async def _start_once(
        self, client: ConnectedClient, job: Job, message: bytes, marks: Mapping[str, str], call: Stream
    ) -> tuple[Stream, bytes]:
        stream = await client.open(call.path, call.metadata)
        with ExitStack() as undo:
            undo.callback(stream.reset)
            await stream.send_message(message)
            reply = await stream.read_message(MOST_REPLY_BYTES)
            if reply is None:
                raise _NotStarted("its cluster broke off")
            if not messages.is_accepted(reply):
                _refuse(messages.refusal_in(reply))
            if not await self._is_there(client, job, marks):
                await _end(stream)
                raise _NotStarted(f"its helper process was not on cluster {job.cluster!r}")
            undo.pop_all()
        return stream, reply

    def _alone(self, cluster: str) -> AbstractAsyncContextManager[Any]:
        """Let heads that share a machine start one helper process after the other: they share its ports."""
        config = self._scheduler.config
        host = config.cluster(cluster).head[0]
        neighbours = [spec for spec in config.clusters if spec.head[0] == host]
        return self._hosts.setdefault(host, asyncio.Lock()) if len(neighbours) > 1 else nullcontext()

    async def _is_there(self, client: ConnectedClient, job: Job, marks: Mapping[str, str]) -> bool:
        """Tell whether the helper process is a driver of the chosen cluster; if so, write it down."""
        metadata = [("client_id", client.client_id)]
        answer = await client.ask(messages.CLUSTER_INFO_PATH, metadata, messages.context_request())
        if answer is None:
            raise _NotStarted("its helper process does not answer")
        ray_job_id, cluster = messages.ray_job_id(answer), job.cluster or ""
        records = self._scheduler.service.session_records
        driver = await records.driver(cluster, ray_job_id)
        if driver is None or not marks.items() <= driver.metadata.items():
            return False
        await asyncio.to_thread(
            records.update,
            job.submission_id,
            ray_job_id=ray_job_id,
            helper_pid=driver.pid,
            helper_address=driver.address,
            failure=None,
            refused_attempt=None,
        )
        return True

    async def _warm_up(self, client: ConnectedClient, cluster: str) -> None:
        """Let a head start a first helper process: that one often fails, and blocks the id of its client."""
        ray_session = await self._scheduler.service.session_records.ray_session(cluster)
        async with self._warming:
            if (cluster, ray_session) in self._warm:
                return
            self._warm.add((cluster, ray_session))
            metadata = [("client_id", uuid.uuid4().hex), ("reconnecting", "False")]
            with suppress(RelayError):
                stream = await client.open(messages.DATAPATH_PATH, metadata)
                await stream.send_message(messages.empty_init())
                if await stream.read_message(MOST_REPLY_BYTES) is not None:
                    await _end(stream)
                stream.reset()


async def _end(stream: Stream) -> None:
    """Let the helper process at the other end of a data path end."""
    await stream.send_message(messages.cleanup())
    stream.half_close()
    with suppress(asyncio.TimeoutError):
        await within(CLEANUP_S, stream.read_message(MOST_REPLY_BYTES))


def _refuse(reason: str) -> None:
    if any(words in reason for words in NOT_STARTED):
        raise _NotStarted(reason.strip().splitlines()[-1])
    if BAD_ENVIRONMENT in reason:
        raise SessionRefused(f"the cluster cannot set this environment up: {setup_error(reason)}")
    raise SessionRefused(reason)
