"""Views of the clusters without scheduling: probed from here, or asked from a server."""

from __future__ import annotations

import asyncio
from typing import Protocol

from ray_multicluster_scheduler.service.api import Service
from ray_multicluster_scheduler.service.views import ClusterView

#: How often a server is asked what it sees.
ASK_EVERY_S = 1.0


class ClusterLook(Protocol):
    """Looks at all clusters: once with `step`, or again and again with `run`."""

    @property
    def interval_s(self) -> float:
        """How often there is something new to see."""

    async def step(self) -> None:
        """Look at every cluster once."""

    async def run(self) -> None:
        """Go on looking until cancelled."""

    def views(self) -> tuple[ClusterView, ...]:
        """Return what was last seen of every cluster."""


class PublishedLook:
    """What the leader sees, by asking a server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._seen: tuple[ClusterView, ...] = ()

    @property
    def interval_s(self) -> float:
        """How often there is something new to see."""
        return ASK_EVERY_S

    async def step(self) -> None:
        """Ask once."""
        self._seen = await asyncio.to_thread(self._service.clusters)

    async def run(self) -> None:
        """Ask again and again, until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(self.interval_s)

    def views(self) -> tuple[ClusterView, ...]:
        """Return what was last seen of every cluster."""
        return self._seen
