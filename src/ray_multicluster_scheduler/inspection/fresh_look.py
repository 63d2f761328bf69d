"""Fresh snapshots of the clusters, for `explain` and the dry run when there is no leader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ray_multicluster_scheduler.clock import jitter
from ray_multicluster_scheduler.cluster_health.watch import ClusterWatch
from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.core.flow.start_limit import first_limit
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot
from ray_multicluster_scheduler.ports import Clock, Connections
from ray_multicluster_scheduler.service.kept_answer import KeptAnswer
from ray_multicluster_scheduler.service.tail import Reach

#: How long snapshots are reused, so that explaining many jobs in a row probes only once.
GOOD_FOR_S = 2.0

Snapshots = Mapping[str, ClusterSnapshot]


class FreshLook:
    """Probes all clusters on demand, unless it has just done so or a leader publishes snapshots."""

    def __init__(
        self,
        config: Config,
        reach: Reach,
        clock: Clock,
        *,
        origin: str,
        is_published: Callable[[], bool],
    ) -> None:
        self._origin = origin
        self._config = config
        self._reach = reach
        self._clock = clock
        self._is_published = is_published
        self._kept = KeptAnswer(self._look, clock, good_for_s=GOOD_FOR_S)

    def __call__(self) -> Snapshots | None:
        """Return current snapshots; None: those that the leader publishes are as fresh."""
        if self._is_published():
            return None
        return self._kept()

    def _look(self) -> Snapshots:
        snapshots: Snapshots = self._reach(self._probe).result()
        return snapshots

    async def _probe(self, connections: Connections) -> Snapshots:
        settings = self._config.settings
        watch = ClusterWatch(
            connections, clock=self._clock, settings=settings, jitter=jitter, origin=self._origin
        )
        await watch.first_look()
        start_limit = first_limit(settings.max_starts_in_flight).starts
        return {name: replace(seen, start_limit=start_limit) for name, seen in watch.snapshots().items()}
