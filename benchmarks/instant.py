"""Clusters that cost nothing, so that only our own work is measured: a connection without network or Ray."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from pathlib import Path
from typing import cast

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.cluster_health.watch import ClusterWatch
from ray_multicluster_scheduler.config import Config, Settings
from ray_multicluster_scheduler.engine.context import EngineContext, StoreThread
from ray_multicluster_scheduler.engine.engine import EngineThread
from ray_multicluster_scheduler.errors import RemoteJobNotFound
from ray_multicluster_scheduler.executors.contract import ExecutorKind
from ray_multicluster_scheduler.executors.registry import Executors, Registry
from ray_multicluster_scheduler.model.cluster import ClusterSpec, Node, RemoteVersion, Usage
from ray_multicluster_scheduler.model.execution import (
    DEFAULT_EXECUTOR,
    ORDINARY,
    AttemptStatus,
    Inventory,
    InventoryRow,
    SessionDriver,
    Sighting,
    StartRequest,
)
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.ports import ClusterConnection
from ray_multicluster_scheduler.store import Store

CPUS = 10_000.0
CLUSTERS = 8
#: How often it is seen whether all jobs have ended: seldom enough not to be a part of what is measured.
LOOK_EVERY_S = 0.05


class InstantRay:
    """A cluster on which every job has succeeded as soon as it was sent: all of its ports in one."""

    def __init__(self, cluster: str, *, on_submit: Callable[[str], None] = lambda _: None) -> None:
        self.probe = self.packages = self
        self._cluster = cluster
        self._on_submit = on_submit
        self._jobs: dict[str, Sighting] = {}

    @property
    def spec(self) -> ClusterSpec:
        return _spec(self._cluster)

    async def version(self) -> RemoteVersion:
        return RemoteVersion(api_version="4", ray_version="2.60.0", session_name="session")

    async def python_version(self) -> str | None:
        return "3.11.7"

    async def nodes(self) -> tuple[Node, ...]:
        return (Node(node_id="n", address="127.0.0.1", alive=True, is_head=True, resources={"CPU": CPUS}),)

    async def usage(self) -> Usage:
        return Usage(total={"CPU": CPUS}, used={"CPU": 0.0}, pending=())

    async def start(self, request: StartRequest) -> None:
        now = time.time()
        self._jobs[request.remote_id] = Sighting(
            remote_id=request.remote_id,
            status=AttemptStatus.SUCCEEDED,
            exit_code=0,
            started_at=now,
            ended_at=now,
            metadata=request.metadata,
        )
        self._on_submit(request.remote_id)

    async def get(self, remote_id: str) -> Sighting:
        if remote_id not in self._jobs:
            raise RemoteJobNotFound(self._cluster, f"no job {remote_id!r}", status=404)
        return self._jobs[remote_id]

    async def observe(self, remote_ids: Collection[str]) -> Mapping[str, Sighting]:
        return {each: self._jobs[each] for each in remote_ids if each in self._jobs}

    async def inventory(self, keep: Callable[[InventoryRow], bool] = lambda _: True) -> Inventory:
        jobs = self._jobs.values()
        kept = (job for job in jobs if keep(InventoryRow(job.remote_id, job.status, job.metadata)))
        return Inventory(sightings=tuple(kept), remembered=len(jobs))

    async def jobs(self, keep: Callable[[InventoryRow], bool] = lambda _: True) -> Inventory:
        return await self.inventory(keep)

    async def driver(self, job_id: str) -> SessionDriver | None:
        assert job_id

    async def stop(self, remote_id: str) -> bool:
        return remote_id in self._jobs and False

    async def delete(self, remote_id: str) -> None:
        del self._jobs[remote_id]

    async def log(self, remote_id: str, *, last_bytes: int = 2**20) -> str:
        assert last_bytes
        return f"{remote_id} ran\n"

    async def follow_log(self, remote_id: str) -> AsyncIterator[str]:
        yield await self.log(remote_id)

    async def has_package(self, name: str) -> bool:
        return bool(name)

    async def put_package(self, name: str, content: Path) -> None:
        raise AssertionError(f"no job of a benchmark has a package: {name}, {content}")

    async def close(self) -> None:
        self._jobs.clear()


def _spec(name: str) -> ClusterSpec:
    return ClusterSpec(
        name=name, head_address="127.0.0.1:1", dashboard="http://127.0.0.1:1", max_running_jobs=10_000
    )


#: Takes the place of Ray's Jobs API. The connection itself carries out the jobs.
KIND = ExecutorKind(
    name=DEFAULT_EXECUTOR, can=ORDINARY, open=lambda site: cast("InstantRay", site.connection)
)


def start_engine(
    store: Store, directory: Path, connections: Mapping[str, ClusterConnection], **settings: float
) -> EngineThread:
    """Run the real engine on these clusters, in a thread of its own."""
    specs = tuple(map(_spec, connections))
    known = Settings(**{"max_starts_in_flight": 1000, **settings})
    config = Config(path=directory / "clusters.yaml", clusters=specs, settings=known)
    clock = SystemClock()

    def build() -> EngineContext:
        return EngineContext(
            config=config,
            store=store,
            packages=PackageStore(directory / "packages"),
            connections=connections,
            executors=Executors(store, clock, registry=Registry([KIND])),
            watch=ClusterWatch(connections, clock=clock, settings=known, jitter=random.random),
            clock=clock,
            offload=StoreThread(),
            job_token=lambda _: "",
        )

    return EngineThread(build, holder="benchmark")


def run_jobs(store: Store, folder: Path, submit: Callable[[], object], jobs: int) -> float:
    """Submit jobs while the real engine runs; return how many per second go from submit to done."""
    sent: list[str] = []
    clusters = {f"c{n}": InstantRay(f"c{n}", on_submit=sent.append) for n in range(CLUSTERS)}
    engine = start_engine(store, folder, clusters, poll_interval_s=0.05)
    try:
        while len(store.clusters.load_snapshots()) < CLUSTERS:  # until it leads
            engine.check()
            time.sleep(0.01)
        started = time.perf_counter()
        submit()
        while len(sent) < jobs or any(map(store.history.live_remote_ids, clusters)):
            engine.check()
            time.sleep(LOOK_EVERY_S)
        return jobs / (time.perf_counter() - started)
    finally:
        engine.stop()
