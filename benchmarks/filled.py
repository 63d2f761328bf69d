"""How long a submit takes when the store already has many jobs: it should not depend on their number."""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.measure import Line, Size, in_turns, ratio, summary
from ray_multicluster_scheduler.model.job import JobSpec
from ray_multicluster_scheduler.store import Store, open_store

COUNTS = {Size.SMOKE: (0, 1_000), Size.QUICK: (0, 10_000, 100_000), Size.FULL: (0, 100_000, 1_000_000)}
ROUNDS = {Size.SMOKE: 1, Size.QUICK: 5, Size.FULL: 9}
SUBMITS = 50

#: One job of `every` waits, the rest has ended; each has its first event.
_FILL = (
    "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count) "
    'INSERT INTO jobs (submission_id, spec, "user", priority, state, target, attempt, accepted_at, '
    "changed_at, not_before, reason, infra_failures, user_failures, avoid) "
    'SELECT \'old-\' || n, \'{"entrypoint": "true", "user": "ann"}\', \'ann\', 0, '
    "CASE n % :every WHEN 0 THEN 'QUEUED' ELSE 'SUCCEEDED' END, 'FINISHED', 0, 1.0, 1.0, 0.0, 'accepted', 0, "
    "0, '[]' FROM numbers",
    "INSERT INTO events (submission_id, at, new, attempt, reason) "
    "SELECT submission_id, 1.0, 'QUEUED', 0, 'accepted' FROM jobs",
)


def submit_lines(size: Size) -> tuple[Line, ...]:
    """Measure one submitter on stores with no, some and many jobs, in turns."""
    counts = COUNTS[size]
    with ExitStack() as opened:
        sides = {
            f"{count:,}": partial(_median_submit_ms, opened.enter_context(_filled(count))) for count in counts
        }
        found = in_turns(sides, rounds=ROUNDS[size])
    empty, *filled = found.items()
    return (
        *(
            summary(f"one submit, {count} jobs in the store", took, unit="ms")
            for count, took in found.items()
        ),
        *(ratio(f"one submit: {count} jobs / none", took, empty[1], at_most=1.5) for count, took in filled),
    )


@contextmanager
def _filled(count: int) -> Iterator[Store]:
    """Open a store with so many jobs; it is gone at the end."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "store"
        open_store(directory).close()
        if count:
            fill(directory, count)
        store = open_store(directory)
        try:
            yield store
        finally:
            store.close()


def fill(directory: Path, count: int, *, waiting: bool = True) -> None:
    """Put jobs into the store of a directory, without the time that submits take; every other one waits."""
    (database,) = directory.glob("*.db")
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    for statement in _FILL:
        connection.execute(statement, {"count": count, "every": 2 if waiting else count + 1})
    connection.execute("COMMIT")
    connection.close()


def _median_submit_ms(store: Store) -> float:
    spec, took = JobSpec(entrypoint="true", user="ann", requirements={"CPU": 1.0}), []
    for number in range(SUBMITS):
        started = time.perf_counter()
        store.jobs.add([(f"new-{time.time_ns()}-{number}", spec)], now=time.time())
        took.append(time.perf_counter() - started)
    return statistics.median(took) * 1000
