"""What a leader that begins now would see: for `explain` and the dry run where nobody leads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from ray_multicluster_scheduler.clock import jitter
from ray_multicluster_scheduler.cluster_health.watch import ClusterWatch
from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.core.flow.start_limit import first_limit
from ray_multicluster_scheduler.inspection.temporary_loop import Connect, begin_on_temporary_loop
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot
from ray_multicluster_scheduler.ports import Clock, Connections

#: Questions about many jobs, one after the other, share a look.
GOOD_FOR_S = 2.0

Snapshots = Mapping[str, ClusterSnapshot]


class FreshLook:
    """Looks at all clusters when asked, unless it has just done so or somebody publishes what is seen."""

    def __init__(
        self, config: Config, connect: Connect, clock: Clock, *, is_published: Callable[[], bool]
    ) -> None:
        self._config = config
        self._connect = connect
        self._clock = clock
        self._is_published = is_published
        self._lock = threading.Lock()
        self._seen: Snapshots = {}
        self._looked_at = float("-inf")

    def __call__(self) -> Snapshots | None:
        """Return what is seen now; None: what the leader publishes is as fresh."""
        if self._is_published():
            return None
        with self._lock:
            if self._clock.monotonic() - self._looked_at > GOOD_FOR_S:
                self._seen = begin_on_temporary_loop(self._connect, self._look).result()
                self._looked_at = self._clock.monotonic()
            return self._seen

    async def _look(self, connections: Connections) -> Snapshots:
        settings = self._config.settings
        watch = ClusterWatch(
            connections, clock=self._clock, settings=settings, jitter=jitter, lists_jobs=True
        )
        await watch.first_look()
        start_limit = first_limit(settings.max_starts_in_flight).starts
        return {name: replace(seen, start_limit=start_limit) for name, seen in watch.snapshots().items()}
