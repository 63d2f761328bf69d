"""Publishes by what the leader decides, so that `explain` and the dry run decide alike in any process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ray_multicluster_scheduler.asyncio_tools import repeat
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot
from ray_multicluster_scheduler.model.decision import Wait

#: What was seen of a cluster is published this often at most, unless it can change a decision.
PUBLISH_EVERY_S = 0.5
#: Why jobs wait is published this often at most,
WAITS_EVERY_S = 2.0
#: and a pass over thousands of kinds of jobs, which takes seconds, so many times more seldom than it takes.
WAITS_TIMES = 10.0


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

    async def publish_waits(self, waits: Callable[[], Callable[[], tuple[Wait, ...]]]) -> None:
        """Publish why jobs wait until cancelled; `waits` returns what is called off the loop."""
        context, last = self._context, None
        while True:
            began = context.clock.monotonic()
            found = await asyncio.to_thread(waits())
            if found != last:
                await context.offload(context.store.publish_waits, found, epoch=self._epoch)
                last = found
            took_s = context.clock.monotonic() - began
            await asyncio.sleep(max(WAITS_EVERY_S, WAITS_TIMES * took_s))

    async def publish(self) -> None:
        """Publish what is known now: before anything that is given to the store's thread after this."""
        context = self._context
        self._published_at, self._is_soon = context.clock.monotonic(), False
        await context.offload(context.store.save_snapshots, self._snapshots(), epoch=self._epoch)
