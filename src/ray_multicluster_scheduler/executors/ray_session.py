"""The executor of Ray Client sessions. A server connects them; here they are observed.

Starting one means only that its server may connect it: the environment is written down, and its packages are
on the cluster. Ray lists the helper process of a connected session as a driver, so its end is seen whatever
becomes of the server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping

from ray_multicluster_scheduler.asyncio_tools import together
from ray_multicluster_scheduler.core.lifecycle.attempt_request import JOB, ORIGIN
from ray_multicluster_scheduler.errors import RemoteJobNotFound
from ray_multicluster_scheduler.executors.contract import Site
from ray_multicluster_scheduler.model.execution import (
    AttemptStatus,
    FailureKind,
    Inventory,
    InventoryRow,
    Session,
    Sighting,
    StartRequest,
    attempt_of,
)
from ray_multicluster_scheduler.model.result import LeftResult

#: A server says more often than this that the program of a session is still there.
ABSENT_AFTER_S = 30.0
#: A server writes down within this time how a session has ended.
NOTED_WITHIN_S = 15.0
HELPER_ENDED = "its helper process has ended, and its program did not disconnect"
GOOD_END = "its program has disconnected"
NEVER_CONNECTED = "its program was gone before it was connected"


class SessionExecutor:
    """`Executor` for the sessions on one cluster."""

    def __init__(self, site: Site) -> None:
        self._cluster = site.connection.spec.name
        self._probe = site.connection.probe
        self._store = site.store
        self._offload = site.offload
        self._clock = site.clock
        #: When drivers were first seen to be dead, by remote id; few, and gone with the leadership.
        self._dead_since: dict[str, float] = {}

    async def start(self, request: StartRequest) -> None:
        """Do nothing: the server that has accepted the session waits for its placement, and connects it."""

    async def get(self, remote_id: str) -> Sighting:
        """See `Executor`."""
        found = await self.observe([remote_id])
        if remote_id not in found:
            raise RemoteJobNotFound(self._cluster, f"it has no session {remote_id!r}", status=404)
        return found[remote_id]

    async def observe(self, remote_ids: Collection[str]) -> Mapping[str, Sighting]:
        """See `Executor`."""
        ids = {attempt_of(remote_id)[0]: remote_id for remote_id in remote_ids}
        sessions = await self._offload(self._store.sessions.get_many, list(ids))
        found = await together(self._look(ids[name], session) for name, session in sessions.items())
        return {sighting.remote_id: sighting for sighting in found if sighting is not None}

    async def _look(self, remote_id: str, session: Session) -> Sighting | None:
        """Return a session as it is; None: its cluster has forgotten it."""
        metadata = {ORIGIN: self._store.store_id, JOB: session.submission_id}
        if session.ray_job_id is None:
            return self._unconnected(remote_id, session, metadata)
        driver = await self._probe.driver(session.ray_job_id)
        if driver is None or any(driver.metadata.get(key) != value for key, value in metadata.items()):
            return None
        if driver.is_alive:
            self._dead_since.pop(remote_id, None)
            return Sighting(remote_id=remote_id, status=AttemptStatus.RUNNING, metadata=driver.metadata)
        return self._dead(remote_id, session, driver.metadata)

    def _dead(self, remote_id: str, session: Session, metadata: Mapping[str, str]) -> Sighting:
        """Say why the driver is dead. Its server may write that down a little later than Ray shows it."""
        since = self._dead_since.setdefault(remote_id, self._clock.monotonic())
        status = AttemptStatus.RUNNING
        if session.stop_requested:
            status = AttemptStatus.STOPPED
        elif session.disconnected:
            status = AttemptStatus.SUCCEEDED
        elif session.failure is not None:
            return _failed(remote_id, session.failure, metadata)
        elif self._clock.monotonic() - since > NOTED_WITHIN_S:
            return _failed(remote_id, HELPER_ENDED, metadata)
        return Sighting(remote_id=remote_id, status=status, good_end=GOOD_END, metadata=metadata)

    def _unconnected(self, remote_id: str, session: Session, metadata: Mapping[str, str]) -> Sighting:
        attempt = attempt_of(remote_id)[1]
        if session.failure is not None and session.refused_attempt in {None, attempt}:
            kind = FailureKind.USER if session.refused_attempt is None else FailureKind.REFUSED
            failed = _failed(remote_id, session.failure, metadata, kind)
        elif self._clock.now() - session.alive_at >= ABSENT_AFTER_S:
            failed = _failed(remote_id, NEVER_CONNECTED, metadata)
        else:
            return Sighting(remote_id=remote_id, status=AttemptStatus.PENDING, metadata=metadata)
        if session.stop_requested:
            return Sighting(remote_id=remote_id, status=AttemptStatus.STOPPED, metadata=metadata)
        return failed

    async def inventory(self, keep: Callable[[InventoryRow], bool] = lambda _: True) -> Inventory:  # noqa: ARG002
        """Return nothing: a session that nobody knows ends by itself, because its program is gone."""
        return Inventory(sightings=(), remembered=0)

    async def stop(self, remote_id: str) -> bool:
        """Ask the server of a session to end it. Without a server, Ray ends it soon."""
        await self._offload(self._store.sessions.update, [attempt_of(remote_id)[0]], stop_requested=True)
        return True

    async def delete(self, remote_id: str) -> None:
        """Do nothing: Ray forgets its drivers by itself."""

    async def log(self, remote_id: str, *, last_bytes: int = 0) -> str:  # noqa: ARG002
        """Return nothing: its program writes where it runs."""
        return ""

    async def result_place(self, remote_id: str, *, session_name: str | None) -> str | None:  # noqa: ARG002
        """Return nothing: no process of ours begins its program."""
        return None

    async def result(self, remote_id: str) -> LeftResult | None:  # noqa: ARG002
        """Return nothing: its program keeps what it computes."""
        return None

    async def follow_log(self, remote_id: str) -> AsyncIterator[str]:  # noqa: ARG002
        """Yield nothing: its program writes where it runs."""
        return
        yield


def _failed(
    remote_id: str, message: str, metadata: Mapping[str, str], kind: FailureKind = FailureKind.USER
) -> Sighting:
    return Sighting(
        remote_id=remote_id,
        status=AttemptStatus.FAILED,
        failure=kind,
        message=message,
        metadata=metadata,
    )
