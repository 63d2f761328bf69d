"""All clusters as they are at this moment, with what our own store says of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field

from ray_multicluster_scheduler.clock import jitter
from ray_multicluster_scheduler.cluster_health.watch import ClusterWatch
from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.config.store_place import StorePlace
from ray_multicluster_scheduler.core.live_jobs import LiveJobs
from ray_multicluster_scheduler.core.placement.inputs import World, cluster_views
from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.model.cluster import DrainMark
from ray_multicluster_scheduler.model.execution import AttemptStatus
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.ports import Clock, Connections
from ray_multicluster_scheduler.service.make_views import show_cluster
from ray_multicluster_scheduler.service.views import ClusterView
from ray_multicluster_scheduler.store import open_at
from ray_multicluster_scheduler.store_ports import JobStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecords:
    """What our own store has recorded about the clusters."""

    #: Jobs that hold an attempt on a cluster.
    live: Sequence[Job] = ()
    #: Marks made by `raymc drain` and `undrain`.
    drains: Mapping[str, DrainMark] = field(default_factory=dict)
    #: The id of the store, by which our jobs on a cluster are known. Without a store none is ours.
    origin: str = ""

    @classmethod
    def of(cls, store: JobStore) -> ClusterRecords:
        """Read an open store."""
        return cls(live=store.live(), drains=store.drained(), origin=store.store_id)

    @classmethod
    def read(cls, place: StorePlace) -> ClusterRecords:
        """Read a store that is not open; without a readable store nothing is drained or claimed."""
        try:
            with closing(open_at(place, create=False)) as store:
                return cls.of(store)
        except StoreError:
            return cls()


class ClusterLook:
    """Looks at all clusters: once with `step`, or again and again with `run`."""

    def __init__(
        self, config: Config, watch: ClusterWatch, clock: Clock, read_records: Callable[[], ClusterRecords]
    ) -> None:
        self._config = config
        self._watch = watch
        self._clock = clock
        self._read_records = read_records

    @property
    def interval_s(self) -> float:
        """How often there is something new to see."""
        return self._config.settings.probe_interval_s

    async def step(self) -> None:
        """Look at every cluster once."""
        await self._watch.step()

    async def run(self) -> None:
        """Look at each cluster at its own pace, until cancelled."""
        await self._watch.run()

    def views(self) -> tuple[ClusterView, ...]:
        """Return what was last seen of every cluster."""
        records = self._read_records()
        world = World(
            specs=self._config.clusters,
            snapshots=self._watch.snapshots(),
            live=LiveJobs(records.live),
            drains=records.drains,
            now=self._clock.now(),
        )
        return tuple(
            show_cluster(planned, now=world.now, running_jobs=self._running(planned.spec.name))
            for planned in cluster_views(world)
        )

    def _running(self, name: str) -> int | None:
        inventory = self._watch.inventory(name)
        if inventory is None:
            return None
        return sum(each.status is AttemptStatus.RUNNING for each in inventory.sightings)


@asynccontextmanager
async def open_cluster_look(
    config: Config,
    connect: Callable[[], Connections],
    clock: Clock,
    read_records: Callable[[], ClusterRecords],
) -> AsyncIterator[ClusterLook]:
    """Open all clusters of a configuration, and close them again."""
    connections = connect()
    try:
        origin = (await asyncio.to_thread(read_records)).origin
        watch = ClusterWatch(
            connections,
            clock=clock,
            settings=config.settings,
            jitter=jitter,
            lists_jobs=True,
            origin=origin,
        )
        yield ClusterLook(config, watch, clock, read_records)
    finally:
        await asyncio.gather(*(each.close() for each in connections.values()))
