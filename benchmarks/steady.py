"""A long run on ten clusters that remember every job: the last jobs should go as fast as the first."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.instant import InstantRay, start_engine
from benchmarks.measure import Line, Report, Size, main
from ray_multicluster_scheduler.model.job import JobSpec
from ray_multicluster_scheduler.store import open_store

CLUSTERS = 10
JOBS = {Size.SMOKE: 40, Size.QUICK: 10_000, Size.FULL: 20_000}
#: The run is compared in parts: the first tenth, after a warm-up of as many, with the last.
PARTS = 10
PATIENCE_S = 600.0


class Arrivals:
    """Notes when each job reaches its cluster."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self.times: list[float] = []
        self.all_here = threading.Event()

    def note(self, _submission_id: str) -> None:
        self.times.append(time.perf_counter())
        if len(self.times) == self._expected:
            self.all_here.set()


def measure(size: Size) -> Report:
    """Send a long queue and compare the rate of sends at its beginning and at its end."""
    count = JOBS[size]
    arrivals = Arrivals(count)
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "store")
        jobs = [(f"job-{number}", JobSpec(entrypoint="true", user="ann")) for number in range(count)]
        store.jobs.add(jobs, now=time.time())
        clusters = {
            f"c{number}": InstantRay(f"c{number}", on_submit=arrivals.note) for number in range(CLUSTERS)
        }
        engine = start_engine(store, Path(folder), clusters)
        try:
            if not arrivals.all_here.wait(PATIENCE_S):
                raise TimeoutError(f"only {len(arrivals.times)} of {count} jobs were sent")
        finally:
            engine.stop()
            store.close()
    part = count // PARTS
    rates = [part / (arrivals.times[at + part - 1] - arrivals.times[at]) for at in range(part, count, part)]
    return Report(
        name="steady",
        lines=(
            Line(what=f"jobs {part + 1:,} to {2 * part:,}", value=rates[0], unit="jobs/s"),
            Line(what=f"the last {part:,} of {count:,}", value=rates[-1], unit="jobs/s"),
            Line(what="median of all parts", value=statistics.median(rates), unit="jobs/s"),
            Line(what="last / first", value=rates[-1] / rates[0], unit="×", at_least=0.9),
        ),
        notes=(f"{CLUSTERS} clusters without network or Ray, durable store.",),
    )


if __name__ == "__main__":
    main(measure)
