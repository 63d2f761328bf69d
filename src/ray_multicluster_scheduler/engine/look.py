"""One look at the jobs of one cluster, and the memory of how long it has been silent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ray_multicluster_scheduler.errors import ClusterError, ClusterUnreachable, RemoteJobNotFound
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.remote import RemoteJob
from ray_multicluster_scheduler.policy.judge import Sight
from ray_multicluster_scheduler.ports import Clock, RayApi

#: Up to here single reads are cheaper for the cluster than its whole job list.
SINGLE_READS = 4
CONNECT_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a cluster said about a set of attempts, by Ray's ids; `answered` False: nothing."""

    answered: bool
    found: Mapping[str, RemoteJob]
    common: Sight

    def sight(self, job: Job) -> Sight:
        """Return what this look says about one attempt."""
        return replace(self.common, remote=self.found.get(job.remote_id or ""))


class Looker:
    """Looks at one cluster and remembers since when it has not answered."""

    def __init__(self, spec: ClusterSpec, api: RayApi, clock: Clock) -> None:
        self._spec = spec
        self._api = api
        self._clock = clock
        self._answered_at = clock.monotonic()
        self._refused_since: float | None = None

    async def look(self, jobs: Sequence[Job], snapshot: ClusterSnapshot) -> Look:
        """Read these jobs, and the session when one of them is missing."""
        try:
            found = await self._read([job.remote_id or "" for job in jobs])
            missing = any(job.remote_id not in found for job in jobs)
            session = (await self._api.version()).session_name if missing else snapshot.session_name
        except ClusterError as error:
            return await self._silent(error)
        self._answered_at = self._clock.monotonic()
        self._refused_since = None
        dead = frozenset(node.node_id for node in snapshot.nodes or () if not node.alive)
        common = Sight(answered=True, session_name=session, dead_nodes=dead)
        return Look(answered=True, found=found, common=common)

    async def confirm(self, job: Job, sight: Sight) -> Sight:
        """Read one id again, on its own. A failed read makes it no sight at all."""
        try:
            found = await self._read([job.remote_id or ""])
        except ClusterError as error:
            return (await self._silent(error)).common
        return replace(sight, remote=found.get(job.remote_id or ""), confirmed=True)

    async def _read(self, remote_ids: Sequence[str]) -> dict[str, RemoteJob]:
        if len(remote_ids) > SINGLE_READS:
            return {remote.submission_id: remote for remote in await self._api.list_jobs()}
        found = await asyncio.gather(*(self._read_one(remote_id) for remote_id in remote_ids))
        return {remote.submission_id: remote for remote in found if remote is not None}

    async def _read_one(self, remote_id: str) -> RemoteJob | None:
        try:
            return await self._api.get_job(remote_id)
        except RemoteJobNotFound:
            return None

    async def _silent(self, error: ClusterError) -> Look:
        """Note another silent look; whether the whole machine refuses us is evidence, mere silence is not."""
        refused = isinstance(error, ClusterUnreachable) and error.refused and await self._head_refuses()
        now = self._clock.monotonic()
        if not refused:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        common = Sight(
            answered=False,
            silent_s=now - self._answered_at,
            silence=error.detail,
            refused_s=0.0 if self._refused_since is None else now - self._refused_since,
        )
        return Look(answered=False, found={}, common=common)

    async def _head_refuses(self) -> bool:
        """Tell whether nobody listens at the head's own address either. Opens no session there."""
        host, _, port = self._spec.head_address.rpartition(":")
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), CONNECT_TIMEOUT_S)
        except ConnectionRefusedError:
            return True
        except (OSError, asyncio.TimeoutError):
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return False
