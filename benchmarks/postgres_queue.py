"""The durable queue on PostgreSQL: jobs per second from submit to done, and how long submits take.

`ours` and Procrastinate work on the same server, one after the other in each round; both submit from many
threads of a process of their own, one job at a time, every commit is on the disk before its caller goes on,
and the engine or the worker is another process, as programs and schedulers are. Then the same submits
come from one process and from three: servers that share a store must not wait for each other's disk.
"""

from __future__ import annotations

import multiprocessing
import random
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.support.postgres import PostgresServer, a_postgres

from benchmarks import postgres
from benchmarks.instant import CLUSTERS, run_jobs
from benchmarks.measure import CannotMeasure, Report, Size, in_turns, main, percentile, ratio, summary
from ray_multicluster_scheduler.model.job import JobSpec
from ray_multicluster_scheduler.store import Store
from ray_multicluster_scheduler.store.postgres.database import postgres_address
from ray_multicluster_scheduler.store.postgres.opening import open_postgres_store

SUBMITTERS = 24
SERVERS = 3
WORKERS = 8
ROUNDS = {Size.SMOKE: 1, Size.QUICK: 3, Size.FULL: 7}
JOBS = {Size.SMOKE: 48, Size.QUICK: 960, Size.FULL: 3_840}
PAUSE_S = 0.1


def _schema() -> str:
    return f"bench_{uuid.uuid4().hex[:8]}"


def ours(server: PostgresServer, jobs: int) -> float:
    """Return jobs per second from the first submit to the last end."""
    url = server.url(_schema())
    store = open_postgres_store(postgres_address(url))
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres.other_process(_Submitting.open, url) as program,
    ):
        try:
            return run_jobs(store, Path(folder), lambda: program(_Submitting.submit, jobs), jobs)
        finally:
            store.close()


class _Submitting:
    """The program that submits, in its process."""

    store: Store

    @classmethod
    def open(cls, url: str) -> None:
        cls.store = open_postgres_store(postgres_address(url))

    @classmethod
    def submit(cls, jobs: int) -> None:
        submit(cls.store, "job", jobs, SUBMITTERS)
        cls.store.close()


def procrastinate(server: PostgresServer, jobs: int) -> float:
    """Return jobs per second through Procrastinate, in a database of its own on the same server."""
    with postgres.new_database(server) as address:
        return postgres.procrastinate(address, jobs, submitters=SUBMITTERS, workers=WORKERS)


def submit(store: Store, name: str, jobs: int, submitters: int, *, pause_s: float = 0.0) -> list[float]:
    """Let threads hand in jobs one by one, with random pauses; return how long each submit took."""
    took: list[float] = []
    spec = JobSpec(entrypoint="true", user="ann", name="bench", requirements={"CPU": 1.0})

    def submitter(number: int) -> None:
        chance = random.Random(f"{name}-{number}")
        for index in range(jobs // submitters):
            time.sleep(chance.expovariate(1 / pause_s) if pause_s else 0.0)
            started = time.perf_counter()
            store.jobs.add([(f"{name}-{number}-{index}", spec)], now=time.time())
            took.append(time.perf_counter() - started)

    threads = [threading.Thread(target=submitter, args=(number,)) for number in range(submitters)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took


def _submit_to(url: str, name: str, jobs: int, submitters: int) -> list[float]:
    """Submit from a process of its own."""
    store = open_postgres_store(postgres_address(url))
    try:
        return submit(store, name, jobs, submitters, pause_s=PAUSE_S)
    finally:
        store.close()


def submits(server: PostgresServer, jobs: int, *, servers: int) -> float:
    """Return the 99th percentile of submits, in milliseconds, from so many processes together."""
    url = server.url(_schema())
    open_postgres_store(postgres_address(url)).close()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(servers, mp_context=spawn) as pool:
        shares = [
            pool.submit(_submit_to, url, f"server-{number}", jobs // servers, SUBMITTERS // servers)
            for number in range(servers)
        ]
        return percentile([took for share in shares for took in share.result()], 99) * 1000


def with_cpu(spent: list[float], jobs: int, side: Callable[[], float]) -> float:
    """Measure a side, and note what CPU time this process has spent for each job, in milliseconds."""
    begun = time.process_time()
    result = side()
    spent.append((time.process_time() - begun) * 1000 / jobs)
    return result


def measure(size: Size) -> Report:
    """Measure the durable queue on PostgreSQL."""
    jobs, lacking = JOBS[size], postgres.missing()
    cpu: dict[str, list[float]] = {"ours": [], "procrastinate": []}
    if lacking is not None:
        raise CannotMeasure(lacking)
    with a_postgres() as server:
        found = in_turns(
            {
                "ours": lambda: with_cpu(cpu["ours"], jobs, lambda: ours(server, jobs)),
                "procrastinate": lambda: with_cpu(
                    cpu["procrastinate"], jobs, lambda: procrastinate(server, jobs)
                ),
                "one": lambda: submits(server, jobs, servers=1),
                "three": lambda: submits(server, jobs, servers=SERVERS),
            },
            rounds=ROUNDS[size],
        )
    return Report(
        name="postgres_queue",
        lines=(
            summary("ours on PostgreSQL: submit to done", found["ours"], unit="jobs/s"),
            summary("Procrastinate: defer to done", found["procrastinate"], unit="jobs/s"),
            ratio("ours / Procrastinate", found["ours"], found["procrastinate"], at_least=1.6),
            summary("CPU of the engine's process for a job, ours", cpu["ours"], unit="ms"),
            summary("CPU of the worker's process for a job, Procrastinate", cpu["procrastinate"], unit="ms"),
            summary("submit p99, one server", found["one"], unit="ms"),
            summary("submit p99, three servers, the same submits", found["three"], unit="ms"),
            ratio("submit p99, three servers / one", found["three"], found["one"], at_most=2),
        ),
        notes=(
            f"{jobs} jobs, {SUBMITTERS} submitters, {CLUSTERS} instant clusters, one PostgreSQL for all.",
            "Submitters are threads of one process, engine or worker another one, the server has its own.",
            f"For the percentiles each submitter pauses for {PAUSE_S:g} s on average.",
        ),
    )


if __name__ == "__main__":
    main(measure)
