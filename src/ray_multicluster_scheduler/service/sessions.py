"""The records of Ray Client sessions, for the server that their programs are connected to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from ray_multicluster_scheduler.model.execution import Session, SessionDriver
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.ports import Clock, ClusterProbe
from ray_multicluster_scheduler.service.logs import Reach
from ray_multicluster_scheduler.store import Store

T = TypeVar("T")


class SessionRecords:
    """What is known of sessions: in the store, and on the clusters where their helper processes run."""

    def __init__(self, store: Store, clock: Clock, reach: Reach) -> None:
        """`reach` runs a coroutine that talks to clusters."""
        self._store = store
        self._clock = clock
        self._reach = reach

    def job(self, submission_id: str) -> Job:
        """Return the job of a session; raises `JobNotFound`."""
        return self._store.jobs.get(submission_id)

    def get_many(self, submission_ids: Sequence[str]) -> dict[str, tuple[Job, Session]]:
        """Return those of these sessions that there are, each with its job."""
        jobs = self._store.jobs.get_many(submission_ids)
        sessions = self._store.sessions.get_many(submission_ids)
        return {name: (job, sessions[name]) for name, job in jobs.items() if name in sessions}

    def environment(self, submission_id: str) -> Mapping[str, Any]:
        """Return the environment of a placed session, as it was composed for its cluster."""
        return self._store.history.attempts(submission_id, last=1)[-1].runtime_env

    def update(self, submission_id: str, **values: Any) -> None:
        """Set fields of a session's record; an unknown id is ignored."""
        self._store.sessions.update([submission_id], **values)

    def still_wait(self, submission_ids: Sequence[str]) -> None:
        """Note that the programs of these sessions are there: the leader ends sessions without one."""
        self._store.sessions.update(submission_ids, alive_at=self._clock.now())

    async def driver(self, cluster: str, ray_job_id: str) -> SessionDriver | None:
        """Ask a cluster for a helper process by Ray's id of it; None: the cluster does not know it."""
        return await self._asked(cluster, lambda probe: probe.driver(ray_job_id))

    async def ray_session(self, cluster: str) -> str | None:
        """Ask a cluster for the name of its Ray session: a new one has started no helper process yet."""
        return (await self._asked(cluster, lambda probe: probe.version())).session_name

    async def _asked(self, cluster: str, question: Callable[[ClusterProbe], Coroutine[Any, Any, T]]) -> T:
        return await asyncio.wrap_future(
            self._reach(lambda connections: question(connections[cluster].probe))
        )
