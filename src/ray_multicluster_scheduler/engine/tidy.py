"""Tidies up on one cluster: stops attempts that were given up, and deletes ended ones that are kept here."""

from __future__ import annotations

import asyncio

from ray_multicluster_scheduler.asyncio_tools import repeat
from ray_multicluster_scheduler.cluster_health.isolation import Isolation
from ray_multicluster_scheduler.core.live_jobs import LiveJobs
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.engine.forget import Forgetter
from ray_multicluster_scheduler.engine.sweep import Sweeper
from ray_multicluster_scheduler.errors import ClusterError
from ray_multicluster_scheduler.model.cluster import Health

#: The cluster's whole job list is read once in so many probes, more often while there are strays or it cannot
#: be read; and never for more than a twentieth of the time.
SWEEP_PROBES = 12
#: A list that cannot be read is tried again so often at the pace of probes: after that it may be too long.
QUICK_SWEEPS = 3
SWEEP_REST = 20
#: Between two rounds of deletes.
FORGET_PAUSE_S = 0.2


class Tidier:
    """The loop that tidies up on one cluster. Jobs do not depend on it."""

    def __init__(self, context: EngineContext, cluster: str, live: LiveJobs, *, epoch: int) -> None:
        executor = context.connections[cluster].executor
        self._context = context
        self._cluster = cluster
        self._sweeper = Sweeper(context, cluster, executor, live, epoch=epoch)
        self._forgetter = Forgetter(context, cluster, executor)
        #: Monotonic time of the next sweep.
        self._sweep_at = float("-inf")
        #: Sweeps that failed, one after the other.
        self._unread = 0
        self._wake = asyncio.Event()

    def sweep_soon(self) -> None:
        """Look for strays as soon as the cluster answers."""
        self._sweep_at, self._unread = float("-inf"), 0
        self._wake.set()

    def ended(self, remote_id: str) -> None:
        """Take note of the end of an attempt whose result was just written."""
        self._forgetter.ended(remote_id)
        if self._forgetter.is_due:
            self._wake.set()

    async def run(self) -> None:
        """Tidy up until cancelled."""
        isolation = Isolation(self._cluster, "tidying up there", lambda _: None)
        await repeat(
            lambda: isolation.run(self._step), self._wake, lambda: isolation.pause_s(self._pause_s())
        )

    async def _step(self) -> None:
        """Sweep when it is time, and delete ended attempts that the cluster need not remember any longer."""
        clock, seen = self._context.clock, self._context.watch.snapshot(self._cluster)
        if seen.health is Health.HEALTHY and clock.monotonic() >= self._sweep_at:
            self._sweep_at = float("inf")
            pause_s = await self._sweep()
            # Whoever asked for one meanwhile means what this one has not seen.
            self._sweep_at = min(self._sweep_at, clock.monotonic() + pause_s)
        await self._forgetter.step()

    async def _sweep(self) -> float:
        """Look for strays; return how long to wait before the next sweep."""
        interval_s, began_at = self._context.settings.probe_interval_s, self._context.clock.monotonic()
        try:
            swept = await self._sweeper.sweep()
        except ClusterError:  # what is wrong with it is for the probes to tell
            self._unread += 1
            return interval_s if self._unread <= QUICK_SWEEPS else SWEEP_PROBES * interval_s
        self._unread = 0
        self._forgetter.found(swept.ended)
        rest_s = SWEEP_REST * (self._context.clock.monotonic() - began_at)
        return max(rest_s, interval_s if swept.suspects else SWEEP_PROBES * interval_s)

    def _pause_s(self) -> float:
        if self._forgetter.is_due:
            return FORGET_PAUSE_S
        left_s = self._sweep_at - self._context.clock.monotonic()
        return max(left_s, self._context.settings.probe_interval_s)
