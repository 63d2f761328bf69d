"""Carries out what is to be done on one cluster. Nothing here waits for another one, and nothing is decided.

What comes of it is told as an event. A bug that the cluster's answers wake is told too, and concerns no other
cluster (cluster_health/watch.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from ray_multicluster_scheduler.asyncio_tools import both
from ray_multicluster_scheduler.cluster_health.diagnosis import PortState
from ray_multicluster_scheduler.cluster_health.tcp_port import head_state, port_state
from ray_multicluster_scheduler.cluster_health.watch import Isolation
from ray_multicluster_scheduler.core.events import (
    AttemptsObserved,
    Event,
    HeadSeen,
    LogRead,
    ObservationFailed,
    SendEnded,
    StopTaken,
)
from ray_multicluster_scheduler.core.instructions import (
    ObserveAttempts,
    ReadLog,
    SendAttempt,
    StopAttempt,
    WriteMoves,
)
from ray_multicluster_scheduler.core.lifecycle.attempt_request import is_ours
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.engine.send import Sender
from ray_multicluster_scheduler.errors import (
    ClusterBadAnswer,
    ClusterError,
    ClusterTimeout,
    ClusterUnreachable,
    StoreError,
)
from ray_multicluster_scheduler.executors.contract import Executor
from ray_multicluster_scheduler.model.cluster import ClusterSpec, Health, Witness
from ray_multicluster_scheduler.model.execution import Sighting
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.result import LeftResult
from ray_multicluster_scheduler.model.states import FINAL
from ray_multicluster_scheduler.text import visible

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 2.0
#: Logs of one cluster that are read at once: each may be large, and many jobs can end together.
LOGS_AT_ONCE = 4
#: Between two tries to read a log whose answer broke off before it began.
READ_AGAIN_S = 1.0
LOG_TRIES = 2


class ClusterIO:
    """Sends, looks, stops and reads logs on one cluster; `hear` gets the results."""

    def __init__(
        self,
        context: EngineContext,
        spec: ClusterSpec,
        hear: Callable[[Event], None],
        *,
        is_wanted: Callable[[Job], bool],
        write: Callable[[WriteMoves], Awaitable[None]],
    ) -> None:
        self._context = context
        self._spec = spec
        self._hear = hear
        self._connection = context.connections[spec.name]
        self._sender = Sender(context, spec, is_wanted=is_wanted, write=write)
        #: The session in which the head's addresses were last looked at, and when.
        self._looked: tuple[str | None, float] = None, 0.0
        self._log_slots = asyncio.Semaphore(LOGS_AT_ONCE)
        report = context.watch.reporter(spec.name, "worker")
        self.isolation = Isolation(spec.name, "handling its jobs", report)

    # -- instructions

    async def send(self, wanted: SendAttempt) -> None:
        """Start an attempt."""

        async def send() -> SendEnded:
            outcome = await self._sender.send(wanted)
            return SendEnded(job=wanted.job, is_new=wanted.is_new, outcome=outcome)

        await self._tell(send(), [wanted.job])
        await self._tell(self._look_at_head(), ())

    async def observe(self, wanted: ObserveAttempts) -> None:
        """Look at attempts."""
        await self._tell(self._observe(wanted), wanted.jobs)
        await self._tell(self._look_at_head(), ())

    async def read_log(self, wanted: ReadLog) -> None:
        """Read the end of a log, and the result if this is the end of the job."""
        ends_job = any(move.new in FINAL for move in wanted.moves)

        async def read() -> LogRead:
            text, result = await both(self._log(wanted.job), self._result(wanted.job, wanted=ends_job))
            return LogRead(asked=wanted, text=text, result=result)

        await self._tell(read(), [wanted.job])

    async def stop(self, wanted: StopAttempt) -> None:
        """Ask for the stop of an attempt."""

        async def stop() -> StopTaken | None:
            self._context.crash_point("stop:before-post")
            try:
                await self._executor(wanted.executor).stop(wanted.remote_id)
            except ClusterError as error:
                log.warning("stop of %s not delivered: %s", wanted.remote_id, visible(str(error)))
                return None
            return StopTaken(cluster=self._spec.name, remote_id=wanted.remote_id)

        await self._tell(stop(), ())

    def broken(self, bug: Exception, jobs: Sequence[str]) -> ObservationFailed:
        """Report a bug; return until when the cluster is left alone."""
        self.isolation.failed(bug)
        again_at = self._context.clock.now() + self.isolation.pause_s(0.0)
        return ObservationFailed(cluster=self._spec.name, again_at=again_at, jobs=jobs)

    async def _tell(self, work: Coroutine[Any, Any, Event | None], jobs: Sequence[Job]) -> None:
        try:
            event = await work
            if event is not None:
                self._hear(event)
        except StoreError:
            raise
        except Exception as bug:  # noqa: BLE001 - of this cluster's work: no other cluster is concerned
            self._hear(self.broken(bug, [job.submission_id for job in jobs]))

    # -- looks

    async def _observe(self, wanted: ObserveAttempts) -> AttemptsObserved:
        clock = self._context.clock
        asked_at = clock.now()
        snapshot = self._context.watch.snapshot(self._spec.name)  # older than what is read now
        try:
            found = await self._read(wanted.jobs)
            session_name = snapshot.session_name
            if any(job.remote_id not in found for job in wanted.jobs):
                session_name = (await self._connection.probe.version()).session_name
        except ClusterError as error:
            refused = isinstance(error, ClusterUnreachable) and error.refused and await self._head_refuses()
            return AttemptsObserved(
                cluster=self._spec.name,
                jobs=wanted.jobs,
                answered=False,
                confirmed=wanted.confirms,
                asked_at=asked_at,
                took_s=clock.now() - asked_at,
                silence=error.detail,
                refused=refused,
            )
        return AttemptsObserved(
            cluster=self._spec.name,
            jobs=wanted.jobs,
            answered=True,
            found=found,
            session_name=session_name,
            confirmed=wanted.confirms,
            asked_at=asked_at,
            took_s=clock.now() - asked_at,
        )

    async def _read(self, jobs: Sequence[Job]) -> dict[str, Sighting]:
        """Return those of these jobs that the cluster has. Somebody else's job of the same id is not one."""
        found: dict[str, Sighting] = {}
        for name in {job.spec.executor for job in jobs}:
            ids = [job.remote_id or "" for job in jobs if job.spec.executor == name]
            found |= await self._executor(name).observe(ids)
        origin = self._context.store.store_id
        return {
            sighting.remote_id: sighting
            for job in jobs
            if (sighting := found.get(job.remote_id or "")) and is_ours(sighting, job, origin=origin)
        }

    def _executor(self, name: str) -> Executor:
        return self._context.executor(self._spec.name, name)

    async def _look_at_head(self) -> HeadSeen | None:
        """Look now and then whether the addresses of a head that is well are open: see `HeadSeen`."""
        snapshot, now = self._context.watch.snapshot(self._spec.name), self._context.clock.monotonic()
        session_name = snapshot.session_name
        if snapshot.health is not Health.HEALTHY or session_name is None:
            return None
        looked_in, looked_at = self._looked
        if session_name == looked_in and now < looked_at + self._context.settings.probe_interval_s:
            return None
        self._looked = session_name, now
        states = await head_state(
            self._spec,
            lambda: asyncio.to_thread(self._context.head_ports, session_name),
            timeout_s=CONNECT_TIMEOUT_S,
        )
        if states[0] in {PortState.REFUSED, PortState.SILENT}:
            return None  # it is not well any more
        head = Witness(session_name=session_name, addresses=self._spec.addresses)
        return HeadSeen(cluster=self._spec.name, head=head, is_open=set(states) == {PortState.OPEN})

    async def _head_refuses(self) -> bool:
        """Tell whether nobody listens at the head's own address either. Opens no session there."""
        return await port_state(*self._spec.head, timeout_s=CONNECT_TIMEOUT_S) is PortState.REFUSED

    # -- logs

    async def _log(self, job: Job) -> str | None:
        """Return the end of a job's log; None when it cannot be had: the job still ends."""
        assert job.remote_id is not None
        keep_bytes = self._context.settings.log_keep_bytes
        async with self._log_slots:
            for tries in range(1, LOG_TRIES + 1):
                try:
                    executor = self._executor(job.spec.executor)
                    return await executor.log(job.remote_id, last_bytes=keep_bytes)
                except ClusterError as error:
                    if tries == LOG_TRIES or not isinstance(error, (ClusterTimeout, ClusterBadAnswer)):
                        log.warning("log of %s not kept: %s", job.submission_id, visible(str(error)))
                        return None
                await asyncio.sleep(READ_AGAIN_S)
        return None

    async def _result(self, job: Job, *, wanted: bool) -> LeftResult | None:
        """Return what a job left as its result; what went wrong, if it cannot be had: the job still ends."""
        assert job.remote_id is not None
        if not wanted or not self._context.executors.can(job.spec.executor).leaves_result:
            return None
        executor = self._executor(job.spec.executor)
        for tries in range(1, LOG_TRIES + 1):
            try:
                async with self._log_slots:
                    return await executor.result(job.remote_id)
            except ClusterError as error:
                if tries == LOG_TRIES or not isinstance(error, (ClusterTimeout, ClusterBadAnswer)):
                    log.warning("result of %s not kept: %s", job.submission_id, visible(str(error)))
                    return LeftResult(problem=f"it could not be read when the job ended: {error}")
            await asyncio.sleep(READ_AGAIN_S)
        return None
