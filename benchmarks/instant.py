"""Clusters that cost nothing, so that only our own work is measured: a `RayApi` without network or Ray."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.cluster_health.watch import ClusterWatch
from ray_multicluster_scheduler.config import Config, Settings
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.engine.offload import Offload
from ray_multicluster_scheduler.engine.thread import EngineThread
from ray_multicluster_scheduler.errors import RemoteJobNotFound
from ray_multicluster_scheduler.model.cluster import ClusterSpec, Node, Usage
from ray_multicluster_scheduler.model.remote import (
    Listing,
    RemoteJob,
    RemoteStatus,
    RemoteSubmit,
    RemoteVersion,
)
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.ports import JobStore, RayApi

CPUS = 10_000.0


class InstantRay:
    """A cluster on which every job has succeeded as soon as it was sent."""

    def __init__(self, name: str, *, on_submit: Callable[[str], None] = lambda _: None) -> None:
        self.name = name
        self._on_submit = on_submit
        self._jobs: dict[str, RemoteJob] = {}

    async def version(self) -> RemoteVersion:
        return RemoteVersion(api_version="4", ray_version="2.60.0", session_name="session")

    async def python_version(self) -> str | None:
        return "3.11.7"

    async def nodes(self) -> tuple[Node, ...]:
        return (Node(node_id="n", address="127.0.0.1", alive=True, is_head=True, resources={"CPU": CPUS}),)

    async def usage(self) -> Usage:
        return Usage(total={"CPU": CPUS}, used={"CPU": 0.0}, pending=())

    async def submit_job(self, request: RemoteSubmit) -> None:
        now = time.time()
        self._jobs[request.submission_id] = RemoteJob(
            submission_id=request.submission_id,
            status=RemoteStatus.SUCCEEDED,
            entrypoint=request.entrypoint,
            start_time=now,
            end_time=now,
            metadata=request.metadata,
            driver_exit_code=0,
        )
        self._on_submit(request.submission_id)

    async def get_job(self, submission_id: str) -> RemoteJob:
        if submission_id not in self._jobs:
            raise RemoteJobNotFound(self.name, f"no job {submission_id!r}", status=404)
        return self._jobs[submission_id]

    async def list_jobs(self, keep: Callable[[Mapping[str, Any]], bool] = lambda _: True) -> Listing:
        rows = [(job, {**asdict(job), "status": job.status.value}) for job in self._jobs.values()]
        return Listing(jobs=tuple(job for job, row in rows if keep(row)), remembered=len(rows))

    async def stop_job(self, submission_id: str) -> bool:
        return submission_id in self._jobs and False

    async def delete_job(self, submission_id: str) -> None:
        del self._jobs[submission_id]

    async def job_logs(self, submission_id: str, *, last_bytes: int = 2**20) -> str:
        assert last_bytes
        return f"{submission_id} ran\n"

    async def tail_job_logs(self, submission_id: str) -> AsyncIterator[str]:
        yield await self.job_logs(submission_id)

    async def has_package(self, name: str) -> bool:
        return bool(name)

    async def put_package(self, name: str, content: Path) -> None:
        raise AssertionError(f"no job of a benchmark has a package: {name}, {content}")

    async def close(self) -> None:
        self._jobs.clear()


def start_engine(
    store: JobStore, directory: Path, apis: Mapping[str, RayApi], **settings: float
) -> EngineThread:
    """Run the real engine on these clusters, in a thread of its own."""
    specs = tuple(
        ClusterSpec(
            name=name, head_address="127.0.0.1:1", dashboard="http://127.0.0.1:1", max_running_jobs=10_000
        )
        for name in apis
    )
    known = Settings(**{"max_starts_in_flight": 1000, **settings})
    config = Config(path=directory / "clusters.yaml", clusters=specs, settings=known)
    clock = SystemClock()

    def build() -> EngineContext:
        return EngineContext(
            config=config,
            store=store,
            packages=PackageStore(directory / "packages"),
            apis=apis,
            watch=ClusterWatch(apis, clock=clock, settings=known, jitter=random.random),
            clock=clock,
            jitter=random.random,
            offload=Offload(),
            job_token=lambda _: "",
        )

    return EngineThread(build, holder="benchmark")
