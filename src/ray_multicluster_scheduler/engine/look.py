"""One look at the jobs of one cluster, and the memory of how long it has been silent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ray_multicluster_scheduler.cluster_health.diagnosis import Door
from ray_multicluster_scheduler.cluster_health.tcp_port import knock
from ray_multicluster_scheduler.core.lifecycle.attempt_request import is_ours
from ray_multicluster_scheduler.core.lifecycle.observe import Observation
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.errors import ClusterError, ClusterUnreachable
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.model.execution import AttemptStatus, Sighting
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.ports import ClusterConnection

CONNECT_TIMEOUT_S = 2.0
#: Two failed looks that are further apart than this, and than twenty polls, are not one silence: this process
#: was stopped in between.
LONGEST_GAP_S = 60.0
LONGEST_GAP_POLLS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a cluster said about a set of attempts, by remote id; `answered` False: nothing."""

    answered: bool
    found: Mapping[str, Sighting]
    common: Observation
    #: When former looks have last found attempts PENDING, by remote id.
    pending_at: Mapping[str, float] = field(default_factory=dict)

    def observation(self, job: Job, *, stopping_s: float | None) -> Observation:
        """Return what this look says about one attempt."""
        remote_id = job.remote_id or ""
        return replace(
            self.common,
            sighting=self.found.get(remote_id),
            pending_at=self.pending_at.get(remote_id),
            stopping_s=stopping_s,
        )


class Looker:
    """Looks at one cluster and remembers since when it has not answered."""

    def __init__(self, context: EngineContext, spec: ClusterSpec, connection: ClusterConnection) -> None:
        self._context = context
        self._spec = spec
        self._probe = connection.probe
        self._executor = connection.executor
        self._longest_gap_s = LONGEST_GAP_S + LONGEST_GAP_POLLS * context.settings.poll_interval_s
        #: All monotonic: of the first look of this silence, of its last one, and since when all is refused.
        self._silent_since: float | None = None
        self._silent_at = 0.0
        self._refused_since: float | None = None
        self._pending_at: dict[str, float] = {}

    async def look(self, jobs: Sequence[Job]) -> Look:
        """Read these jobs, and the session when one of them is missing."""
        snapshot = self._context.watch.snapshots()[self._spec.name]  # older than what is read now
        began_at = self._context.clock.now()
        try:
            found = await self._read(jobs)
            missing = any(job.remote_id not in found for job in jobs)
            session = (await self._probe.version()).session_name if missing else snapshot.session_name
        except ClusterError as error:
            return await self._silent(error)
        self.rest()
        dead = frozenset(node.node_id for node in snapshot.nodes or () if not node.alive)
        common = Observation(answered=True, session_name=session, dead_nodes=dead)
        before, self._pending_at = self._pending_at, _waiting_at(found.values(), began_at)
        return Look(answered=True, found=found, common=common, pending_at=before)

    async def confirm(self, jobs: Sequence[Job], look: Look) -> Look:
        """Read some of these jobs again. When the read fails, the cluster counts as silent."""
        try:
            found = await self._read(jobs)
        except ClusterError as error:
            return await self._silent(error)
        return replace(look, found=found, common=replace(look.common, confirmed=True))

    def rest(self) -> None:
        """Forget the silence: the cluster answered, or there is nothing to look at."""
        self._silent_since = self._refused_since = None

    async def _read(self, jobs: Sequence[Job]) -> dict[str, Sighting]:
        """Return those of these jobs that the cluster has. Somebody else's job of the same id is not one."""
        found = await self._executor.observe([job.remote_id or "" for job in jobs])
        origin = self._context.store.store_id
        return {
            sighting.remote_id: sighting
            for job in jobs
            if (sighting := found.get(job.remote_id or "")) and is_ours(sighting, job, origin=origin)
        }

    async def _silent(self, error: ClusterError) -> Look:
        """Note another silent look; whether the whole machine refuses us is evidence, mere silence is not."""
        refused = isinstance(error, ClusterUnreachable) and error.refused and await self._head_refuses()
        now = self._context.clock.monotonic()
        if now - self._silent_at > self._longest_gap_s:
            self.rest()
        self._silent_at = now
        self._silent_since = now if self._silent_since is None else self._silent_since
        if not refused:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        common = Observation(
            answered=False,
            silent_s=now - self._silent_since,
            silence=error.detail,
            refused_s=0.0 if self._refused_since is None else now - self._refused_since,
        )
        return Look(answered=False, found={}, common=common)

    async def _head_refuses(self) -> bool:
        """Tell whether nobody listens at the head's own address either. Opens no session there."""
        return await knock(*self._spec.head, timeout_s=CONNECT_TIMEOUT_S) is Door.REFUSED


def _waiting_at(found: Iterable[Sighting], at: float) -> dict[str, float]:
    return {each.remote_id: at for each in found if each.status is AttemptStatus.PENDING}
