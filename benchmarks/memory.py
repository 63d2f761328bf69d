"""Memory: what one queued job and one watched cluster cost the engine."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

from benchmarks.measure import Line, Report, Size, main
from benchmarks.plan import clusters, jobs
from ray_multicluster_scheduler.core.placement.queue import JobQueue

QUEUED = {Size.SMOKE: 1_000, Size.QUICK: 50_000, Size.FULL: 500_000}
WATCHED = 1_000


def bytes_of(build: Callable[[], object]) -> int:
    """Return how much memory what `build` returns holds."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        built = build()
        after, _ = tracemalloc.get_traced_memory()
        del built
    finally:
        tracemalloc.stop()
    return after - before


def queue(count: int) -> JobQueue:
    """Return a queue of jobs with names as long as ours are."""
    made = JobQueue()
    for job in jobs(count):
        made.put(job)
    return made


def measure(size: Size) -> Report:
    """Measure memory per job and per cluster."""
    count = QUEUED[size]
    return Report(
        name="memory",
        lines=(
            Line(
                what="engine, per queued job",
                value=bytes_of(lambda: queue(count)) / count / 1024,
                unit="KiB",
                at_most=2.0,
            ),
            Line(
                what="engine, per watched cluster (its view)",
                value=bytes_of(lambda: clusters(WATCHED)) / WATCHED / 1024,
                unit="KiB",
            ),
        ),
        notes=(f"{count:,} queued jobs of 200 shapes; {WATCHED:,} clusters.",),
    )


if __name__ == "__main__":
    main(measure)
