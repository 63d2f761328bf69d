"""Accepting jobs where many clusters are configured: it should not cost more than with ten.

Every cluster has an environment of its own (a home directory), and so has every job (a variable).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.measure import Line, Report, Size, in_turns, main, ratio, summary
from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.config import Config, Settings
from ray_multicluster_scheduler.executors.registry import Registry
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec, Health
from ray_multicluster_scheduler.service.events import EventHub
from ray_multicluster_scheduler.service.request import JobRequest
from ray_multicluster_scheduler.service.service import JobService
from ray_multicluster_scheduler.store import open_store

FEW, MANY = 10, 1_000
JOBS = {Size.SMOKE: 20, Size.QUICK: 2_000, Size.FULL: 2_000}
SINGLY = {Size.SMOKE: 3, Size.QUICK: 50, Size.FULL: 200}
ROUNDS = {Size.SMOKE: 1, Size.QUICK: 5, Size.FULL: 9}


def cluster(number: int) -> ClusterSpec:
    """Return one of many clusters that differ in their home directories."""
    return ClusterSpec(
        name=f"cluster-{number:04}",
        head_address="127.0.0.1:1",
        dashboard="http://127.0.0.1:1",
        max_running_jobs=50,
        runtime_env={"pip": ["numpy"], "env_vars": {"home_dir": f"/home/user-{number}/"}},
    )


def request(number: int) -> JobRequest:
    """Return one of many jobs that differ in a variable."""
    return JobRequest(
        entrypoint="true",
        user="ann",
        runtime_env={"pip": ["emoji"], "env_vars": {"SHARD": str(number)}},
        resource_requirements={"CPU": 1},
    )


@contextmanager
def service_of(count: int) -> Iterator[JobService]:
    """Open a service for so many clusters, all of which were looked at."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        specs = tuple(cluster(number) for number in range(count))
        config = Config(path=Path(folder) / "clusters.yaml", clusters=specs, settings=Settings())
        store = open_store(Path(folder) / "store")
        try:
            lease = store.leases.acquire("benchmark", ttl_s=3600, now=clock.now())
            assert lease is not None
            store.clusters.save_snapshots(
                [_seen(spec.name, clock.now()) for spec in specs], epoch=lease.epoch
            )
            yield JobService(config, store, clock, EventHub(store, clock), Registry())
        finally:
            store.close()


def _seen(name: str, now: float) -> ClusterSnapshot:
    return ClusterSnapshot(
        name=name, health=Health.HEALTHY, score=1.0, total={"CPU": 16.0}, used={}, observed_at=now
    )


def at_once(service: JobService, requests: Sequence[JobRequest]) -> float:
    """Return the seconds of one call with all jobs."""
    started = time.perf_counter()
    service.submit(requests)
    return time.perf_counter() - started


def one_by_one(service: JobService, requests: Sequence[JobRequest]) -> float:
    """Return the seconds of one call for each job."""
    started = time.perf_counter()
    for each in requests:
        service.submit([each])
    return time.perf_counter() - started


def measure(size: Size) -> Report:
    """Measure how long jobs take to be accepted with few and with many clusters."""
    lines: list[Line] = []
    with ExitStack() as opened:
        services = {count: opened.enter_context(service_of(count)) for count in (FEW, MANY)}
        for how, jobs, way in (
            ("in one call", JOBS[size], at_once),
            ("one by one", SINGLY[size], one_by_one),
        ):
            requests = [request(number) for number in range(jobs)]
            sides = {str(count): partial(way, service, requests) for count, service in services.items()}
            found = in_turns(sides, rounds=ROUNDS[size])
            what = f"{jobs:,} jobs {how}"
            lines += [summary(f"{what}, {count} clusters", took, unit="s") for count, took in found.items()]
            many, few = found[str(MANY)], found[str(FEW)]
            lines.append(ratio(f"{what}: {MANY:,} clusters / {FEW}", many, few, at_most=1.5))
    return Report(name="accept", lines=tuple(lines), notes=("Durable: each call is fsynced.",))


if __name__ == "__main__":
    main(measure)
