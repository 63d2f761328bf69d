"""Publishes by what the leader decides, so that `explain` and the dry run decide alike in any process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ray_multicluster_scheduler.asyncio_tools import repeat
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot

#: What was seen of a cluster is published this often at most, unless it can change a decision.
PUBLISH_EVERY_S = 0.5


class Publisher:
    """Writes snapshots to the store: at once where that is needed, else in a while together."""

    def __init__(
        self, context: EngineContext, snapshots: Callable[[], Sequence[ClusterSnapshot]], *, epoch: int
    ) -> None:
        self._context = context
        self._snapshots = snapshots
        self._epoch = epoch
        self._wake = asyncio.Event()
        self._published_at = float("-inf")
        self._is_soon = False

    def publish_soon(self) -> None:
        """Publish what is known, but not too often."""
        if self._context.clock.monotonic() - self._published_at >= PUBLISH_EVERY_S:
            self._wake.set()
        elif not self._is_soon:
            self._is_soon = True
            asyncio.get_running_loop().call_later(PUBLISH_EVERY_S, self._wake.set)

    async def run(self) -> None:
        """Publish until cancelled."""
        await repeat(self.publish, self._wake, lambda: self._context.settings.probe_interval_s)

    async def publish(self) -> None:
        """Publish what is known now: before anything that is given to the store's thread after this."""
        context = self._context
        self._published_at, self._is_soon = context.clock.monotonic(), False
        await context.offload(context.store.save_snapshots, self._snapshots(), epoch=self._epoch)
