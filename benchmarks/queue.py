"""The durable queue: jobs per second from submit to done, all of it fsynced, against Huey and raw SQLite.

`ours`: 64 threads submit one job at a time to the real store; the real engine places, sends and completes
them on clusters that answer at once and are looked at twenty times a second. `Huey`: 64 threads enqueue,
eight threads dequeue, run and store the result (SQLite, `fsync=True`). `raw`: one thread writes the rows that
we write, with prepared statements and one commit for every 64 jobs and step: what SQLite can do on this disk.
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.filled import submit_lines
from benchmarks.instant import CLUSTERS, run_jobs
from benchmarks.measure import Line, Report, Size, in_turns, main, percentile, ratio, summary
from ray_multicluster_scheduler.model.job import JobSpec
from ray_multicluster_scheduler.store import Store, open_store

SUBMITTERS = 64
WORKERS = 8
ROUNDS = {Size.SMOKE: 1, Size.QUICK: 3, Size.FULL: 7}
JOBS = {Size.SMOKE: 128, Size.QUICK: 1_920, Size.FULL: 6_400}
PEER_JOBS = {Size.SMOKE: 64, Size.QUICK: 320, Size.FULL: 960}


def in_threads(work: Callable[[int], None], count: int) -> None:
    """Run `work(0)`, `work(1)`, ... at the same time and wait for all."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def submit_all(store: Store, jobs: int, *, pause_s: float = 0.0) -> list[float]:
    """Let all submitters hand in their share one by one; return how long each submit took.

    `pause_s` is the mean of random pauses: after equal ones, those who shared a commit would come back
    together for ever, and more of them with each round.
    """
    took: list[float] = []
    spec = JobSpec(entrypoint="true", user="ann", name="bench", requirements={"CPU": 1.0})

    def submitter(number: int) -> None:
        chance = random.Random(number)
        for index in range(jobs // SUBMITTERS):
            time.sleep(chance.expovariate(1 / pause_s) if pause_s else 0.0)
            started = time.perf_counter()
            store.jobs.add([(f"job-{number}-{index}", spec)], now=time.time())
            took.append(time.perf_counter() - started)

    in_threads(submitter, SUBMITTERS)
    return took


def ours(jobs: int) -> float:
    """Return jobs per second from the first submit to the last end."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "store")
        try:
            return run_jobs(store, Path(folder), lambda: submit_all(store, jobs), jobs)
        finally:
            store.close()


def huey(jobs: int) -> float:
    """Return jobs per second through Huey: enqueue, dequeue, run, store the result."""
    from huey import SqliteHuey  # noqa: PLC0415 - a peer, not needed for anything else

    with tempfile.TemporaryDirectory() as folder:
        queue = SqliteHuey("bench", filename=f"{folder}/huey.db", fsync=True, timeout=60)
        done = threading.Semaphore(0)

        @queue.task()  # type: ignore[untyped-decorator]
        def run(number: int) -> int:
            return number

        ended = threading.Event()

        def worker(_: int) -> None:
            while not ended.is_set():
                task = queue.dequeue()
                if task is None:
                    time.sleep(0.001)
                else:
                    queue.execute(task)
                    done.release()

        workers = [threading.Thread(target=worker, args=(n,)) for n in range(WORKERS)]
        started = time.perf_counter()
        for each in workers:
            each.start()
        in_threads(lambda number: [run(number) for _ in range(jobs // SUBMITTERS)] and None, SUBMITTERS)
        for _ in range(jobs):
            done.acquire()
        took = time.perf_counter() - started
        ended.set()
        for each in workers:
            each.join()
        queue.storage.close()
        return jobs / took


#: The statements of one job's life, as our store has them: accept, place, submit, end.
_STEPS = (
    (
        'INSERT INTO jobs (submission_id, spec, "user", priority, state, target, attempt, accepted_at, '
        "changed_at, not_before, reason, infra_failures, user_failures, avoid) "
        "VALUES (?1, ?2, 'ann', 0, 'QUEUED', 'FINISHED', 0, 1.0, 1.0, 0.0, 'accepted', 0, 0, '[]')",
        "INSERT INTO events (submission_id, at, new, attempt, reason) VALUES (?1, 1.0, 'QUEUED', 0, ?2)",
    ),
    (
        "UPDATE jobs SET state = 'PLACED', attempt = 1, cluster = 'c1', remote_id = ?1, reason = 'placed' "
        "WHERE submission_id = ?1 AND state = 'QUEUED' AND attempt = 0 AND ?2 <> ''",
        "INSERT INTO attempts (submission_id, number, cluster, remote_id, entrypoint, runtime_env, decision, "
        "placed_at, reason) VALUES (?1, 1, 'c1', ?1, 'true', '{}', ?2, 1.0, 'placed')",
        "INSERT INTO events (submission_id, at, new, attempt, reason) VALUES (?1, 1.0, 'PLACED', 1, ?2)",
    ),
    (
        "UPDATE jobs SET state = 'SUBMITTED', seen_at = 1.0, reason = 'accepted by the cluster' "
        "WHERE submission_id = ?1 AND state = 'PLACED' AND attempt = 1 AND ?2 <> ''",
        "INSERT INTO events (submission_id, at, new, attempt, reason) VALUES (?1, 1.0, 'SUBMITTED', 1, ?2)",
    ),
    (
        "UPDATE jobs SET state = 'SUCCEEDED', ended_at = 1.0, reason = 'succeeded' "
        "WHERE submission_id = ?1 AND state = 'SUBMITTED' AND attempt = 1 AND ?2 <> ''",
        "UPDATE attempts SET outcome = 'SUCCEEDED', ended_at = 1.0 "
        "WHERE submission_id = ?1 AND number = 1 AND ?2 <> ''",
        "INSERT INTO events (submission_id, at, new, attempt, reason) VALUES (?1, 1.0, 'SUCCEEDED', 1, ?2)",
        "INSERT INTO logs (submission_id, attempt, text) VALUES (?1, 1, ?2)",
    ),
)


def raw(jobs: int) -> float:
    """Return jobs per second of one thread that only writes our rows, 64 jobs in each commit."""
    with tempfile.TemporaryDirectory() as folder:
        open_store(Path(folder) / "store").close()
        (path,) = (Path(folder) / "store").glob("*.db")
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA synchronous=FULL")
        filler = "x" * 200
        started = time.perf_counter()
        for first in range(0, jobs, SUBMITTERS):
            rows = [(f"job-{number}", filler) for number in range(first, min(jobs, first + SUBMITTERS))]
            for step in _STEPS:
                connection.execute("BEGIN IMMEDIATE")
                for statement in step:
                    connection.executemany(statement, rows)
                connection.execute("COMMIT")
        took = time.perf_counter() - started
        connection.close()
        return jobs / took


def submit_latencies(jobs: int, *, pause_s: float) -> list[float]:
    """Return how long 64 submitters waited for each of their submits, with the store to themselves."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "store")
        try:
            return submit_all(store, jobs, pause_s=pause_s)
        finally:
            store.close()


def measure(size: Size) -> Report:
    """Measure the durable queue."""
    jobs, peer_jobs = JOBS[size], PEER_JOBS[size]
    sides = {
        "ours": lambda: ours(jobs),
        "huey": lambda: huey(peer_jobs),
        "raw": lambda: raw(jobs),
    }
    found = in_turns(sides, rounds=ROUNDS[size])
    flooded = submit_latencies(jobs, pause_s=0.0)
    paced = submit_latencies(jobs, pause_s=0.1)
    return Report(
        name="queue",
        lines=(
            summary("ours: submit to done", found["ours"], unit="jobs/s"),
            summary("Huey, fsync: enqueue to result stored", found["huey"], unit="jobs/s"),
            summary("raw SQLite, fsync: the same rows, 64 jobs a commit", found["raw"], unit="jobs/s"),
            ratio("ours / Huey", found["ours"], found["huey"], at_least=10),
            ratio("ours / raw SQLite", found["ours"], found["raw"], at_least=0.15),
            _p99("submit p99, 64 submitters, each ten times a second on average", paced, at_most=10),
            _p99("submit p99, 64 submitters without a pause", flooded),
            *submit_lines(size),
        ),
        notes=(f"{jobs} jobs (peers: {peer_jobs}), {SUBMITTERS} submitters, {CLUSTERS} instant clusters.",),
    )


def _p99(what: str, took: list[float], **target: float) -> Line:
    return Line(what=what, value=percentile(took, 99) * 1000, unit="ms", **target)


if __name__ == "__main__":
    main(measure)
