"""Environments that clusters could not set up, as the leader remembers them; published with the snapshots."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping

from ray_multicluster_scheduler.core.placement.capacity import open_rooms
from ray_multicluster_scheduler.core.placement.impossible import has_failed_everywhere
from ray_multicluster_scheduler.core.placement.inputs import QueuedJobs, World, cluster_views, env_key
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.engine.rules import plan_rules
from ray_multicluster_scheduler.environment.failed_setups import MOST_REMEMBERED, failed_setup
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot
from ray_multicluster_scheduler.model.environment import FailedSetup
from ray_multicluster_scheduler.model.job import Job


class FailedSetups:
    """By cluster and env_key. `publish` tells other processes what this one has seen."""

    def __init__(self, context: EngineContext, *, publish: Callable[[], Awaitable[None]]) -> None:
        self._context = context
        self._publish = publish
        self._queued = QueuedJobs(context.config.clusters)
        self._on: dict[str, dict[str, FailedSetup]] = {spec.name: {} for spec in context.config.clusters}

    async def load(self) -> None:
        """Take over what the leader before has published."""
        seen = await self._context.offload(self._context.store.load_snapshots)
        for name, snapshot in seen.items():
            if name in self._on:
                self._on[name] = dict(snapshot.failed_setups)

    async def failed(self, job: Job, reason: str) -> None:
        """Note that a job's environment cannot be set up on its cluster; published before the job ends."""
        assert job.cluster is not None
        spec, now = self._context.config.cluster(job.cluster), self._context.clock.now()
        session_name = self._context.watch.snapshots()[job.cluster].session_name
        key, known = env_key(job.spec), self._on[job.cluster]
        known = {each: failed for each, failed in known.items() if each != key and failed.until > now}
        is_news = key not in self._on[job.cluster]
        known[key] = failed_setup(reason, spec, session_name, now=now)
        self._on[job.cluster] = dict(list(known.items())[-MOST_REMEMBERED:])
        if is_news:
            await self._publish()

    def worked(self, job: Job) -> None:
        """Take note that a job's driver has started: its environment is there."""
        if known := self._on.get(job.cluster or ""):
            known.pop(env_key(job.spec), None)

    def elsewhere(self, job: Job, snapshots: Mapping[str, ClusterSnapshot]) -> bool:
        """Tell whether some cluster is left that might set a job's environment up."""
        specs, now = self._context.config.clusters, self._context.clock.now()
        views = cluster_views(World(specs=specs, snapshots=snapshots, live=(), now=now))
        rules = plan_rules(self._context.settings)
        return has_failed_everywhere(self._queued.of(job), open_rooms(views), rules) is None

    def all(self) -> Iterator[tuple[str, Mapping[str, FailedSetup]]]:
        """Yield the clusters that could not set something up, with what that was."""
        return ((cluster, failed) for cluster, failed in self._on.items() if failed)
