"""Recorded workloads through the planner in simulated time, beside what one pooled cluster would do.

Each trace is split over clusters: KTH by user over four clusters, LCG by site over the forty largest, SURF
over eight clusters of fixed weights. A cluster is as large as its own jobs need at the trace's load. Jobs
start at once where they are placed, and their ends are seen at once: only the decisions count. The bounds are
computed in the same run: one cluster that has all slots, in the order of arrival, where narrow jobs may pass
wide ones; and the split clusters in the strict order of arrival, where nobody passes anybody.
"""

from __future__ import annotations

import csv
import gzip
import heapq
import itertools
import math
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Line, Report, Size, main
from ray_multicluster_scheduler.core.placement.plan import placements
from ray_multicluster_scheduler.core.placement.queue import JobQueue
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec, Health
from ray_multicluster_scheduler.model.decision import ClusterView, Holding, QueuedJob

#: Where the traces are; they are not part of the project.
DIRECTORY = Path(os.environ.get("RAYMC_TRACES", Path(__file__).parents[2] / "shared" / "traces"))
#: Jobs of the long traces that are replayed, from the middle of each.
WINDOW = 20_000
RULES = PlanRules()


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace: when it came, how long it ran, on how many slots, whose it was."""

    submitted: float
    run_s: float
    slots: int
    user: str
    home: int


@dataclass(frozen=True, slots=True)
class Workload:
    """A trace and the clusters that it is split over."""

    name: str
    jobs: Sequence[TraceJob]
    slots: Sequence[int]


def sized(name: str, jobs: list[TraceJob], *, load: float) -> Workload:
    """Make each cluster as large as the jobs that are at home there need at this load."""
    span_s = jobs[-1].submitted - jobs[0].submitted
    slots = []
    for home in range(max(job.home for job in jobs) + 1):
        here = [job for job in jobs if job.home == home]
        work = sum(job.slots * job.run_s for job in here)
        widest = max(job.slots for job in here)
        slots.append(max(math.ceil(work / span_s / load), widest))
    return Workload(name, jobs, slots)


def read_swf(path: Path) -> Iterator[list[float]]:
    """Yield the rows of a trace in the standard workload format."""
    with gzip.open(path, "rt", errors="replace") as lines:
        for line in lines:
            if line.strip() and not line.startswith(";"):
                yield [float(word) for word in line.split()[:18]]


def kth() -> Workload:
    """Jobs of at most 32 processors, split over four clusters by user."""
    rows = sorted(read_swf(DIRECTORY / "KTH-SP2-1996-2.1-cln.swf.gz"), key=lambda row: row[1])
    jobs = [
        TraceJob(row[1], row[3], max(1, int(row[4])), f"{row[11]:.0f}", int(row[11]) % 4)
        for row in rows
        if row[3] > 0 and row[4] <= 32
    ]
    return sized("KTH", jobs, load=0.8)


def lcg(most: int) -> Workload:
    """One-slot jobs of the forty largest sites."""
    rows = [row for row in read_swf(DIRECTORY / "LCG-2005-1.swf.gz") if row[3] > 0]
    rows.sort(key=lambda row: row[1])
    counts: dict[float, int] = {}
    for row in rows:
        counts[row[15]] = counts.get(row[15], 0) + 1
    sites = {site: n for n, site in enumerate(sorted(counts, key=lambda each: -counts[each])[:40])}
    jobs = [TraceJob(row[1], row[3], 1, f"{row[11]:.0f}", sites[row[15]]) for row in rows if row[15] in sites]
    whole = sized("LCG", jobs, load=0.85)
    return Workload("LCG", whole.jobs[40_000 : 40_000 + most], whole.slots)


def surf(most: int) -> Workload:
    """One-slot jobs without users, over eight clusters of different sizes."""
    weights = (8, 5, 3, 2, 2, 1, 1, 1)
    homes = [home for home, weight in enumerate(weights) for _ in range(weight)]
    with gzip.open(DIRECTORY / "surf_lisa_tasks_halfyear.csv.gz", "rt") as lines:
        rows = sorted(csv.DictReader(lines), key=lambda row: float(row["submission_time_s"]))
    jobs = [
        TraceJob(float(row["submission_time_s"]), float(row["duration_s"]), 1, "all", home)
        for row, home in zip(rows, itertools.cycle(homes), strict=False)
    ]
    whole = sized("SURF", jobs, load=0.7)
    return Workload("SURF", whole.jobs[6_000 : 6_000 + most], whole.slots)


def made_up(count: int) -> Workload:
    """Jobs of several widths that come faster than they end, from three users, on two clusters."""
    dice = random.Random(1)
    jobs = [
        TraceJob(60.0 * n, dice.expovariate(1 / 2_000), dice.choice((1, 2, 4, 8)), f"user-{n % 3}", n % 2)
        for n in range(count)
    ]
    return Workload("made up", jobs, (32, 32))


class Replay:
    """The clusters of a workload and the planner, driven by arrivals and ends."""

    def __init__(self, workload: Workload) -> None:
        self._jobs = workload.jobs
        self._free = list(workload.slots)
        self._total = list(workload.slots)
        self._holdings: list[dict[int, Holding]] = [{} for _ in workload.slots]
        self._views = [self._view(number) for number in range(len(workload.slots))]
        self._numbers = {view.spec.name: number for number, view in enumerate(self._views)}
        self._queue = JobQueue()
        self._held: dict[str, dict[str, float]] = {}
        self._waiting: dict[int, int] = {}
        #: (time, job, cluster) of the ends to come.
        self._ends: list[tuple[float, int, int]] = []
        self.waits = [0.0] * len(workload.jobs)

    def run(self) -> list[float]:
        """Return how long each job has waited."""
        arrived = 0
        while arrived < len(self._jobs) or self._ends:
            now = self._jobs[arrived].submitted if arrived < len(self._jobs) else math.inf
            if self._ends and self._ends[0][0] <= now:
                now = self._ends[0][0]
            while self._ends and self._ends[0][0] <= now:
                self._end(*heapq.heappop(self._ends)[1:])
            while arrived < len(self._jobs) and self._jobs[arrived].submitted <= now:
                self._arrive(arrived)
                arrived += 1
            self._plan(now)
        return self.waits

    def _plan(self, now: float) -> None:
        narrowest = min((slots for slots, count in self._waiting.items() if count), default=None)
        if narrowest is None or max(self._free) < narrowest:
            return  # a pass could place nothing
        lines = self._queue.lines(now=now)
        decided = list(placements(lines, self._views, now=now, rules=RULES, in_use=self._held))
        for each in decided:
            self._start(int(each.submission_id), self._numbers[each.cluster], now)

    def _arrive(self, number: int) -> None:
        job = self._jobs[number]
        self._waiting[job.slots] = self._waiting.get(job.slots, 0) + 1
        self._queue.put(
            QueuedJob(
                submission_id=f"{number:07}",
                seq=number,
                user=job.user,
                priority=0,
                waiting_since=job.submitted,
                claim={"CPU": float(job.slots)},
            )
        )

    def _start(self, number: int, cluster: int, now: float) -> None:
        job = self._jobs[number]
        self.waits[number] = now - job.submitted
        self._queue.remove([f"{number:07}"])
        self._waiting[job.slots] -= 1
        self._hold(job, cluster, job.slots)
        self._holdings[cluster][number] = Holding({"CPU": float(job.slots)}, now)
        self._views[cluster] = self._view(cluster)
        heapq.heappush(self._ends, (now + job.run_s, number, cluster))

    def _end(self, number: int, cluster: int) -> None:
        self._hold(self._jobs[number], cluster, -self._jobs[number].slots)
        del self._holdings[cluster][number]
        self._views[cluster] = self._view(cluster)

    def _hold(self, job: TraceJob, cluster: int, slots: int) -> None:
        self._free[cluster] -= slots
        held = self._held.get(job.user, {}).get("CPU", 0.0) + slots
        self._held[job.user] = {"CPU": held}

    def _view(self, number: int) -> ClusterView:
        name, total = f"cluster-{number:03}", float(self._total[number])
        used = {"CPU": total - self._free[number]}
        return ClusterView(
            spec=ClusterSpec(name=name, head_address="h:1", dashboard="http://h", max_running_jobs=10**6),
            snapshot=ClusterSnapshot(
                name=name, health=Health.HEALTHY, score=1.0, total={"CPU": total}, used={}, observed_at=0.0
            ),
            reserved=used,
            unseen=used,
            live_jobs=len(self._holdings[number]),
            holdings=tuple(self._holdings[number].values()),
        )


def in_order(jobs: Sequence[TraceJob], slots: Sequence[int], *, pass_by: bool) -> list[float]:
    """Return the waits when jobs start in the order of arrival; `pass_by`: those that fit go past others."""
    free, waits = list(slots), [0.0] * len(jobs)
    queues: dict[int, list[int]] = {}
    ends: list[tuple[float, int, int]] = []
    arrived = 0
    while arrived < len(jobs) or ends:
        now = jobs[arrived].submitted if arrived < len(jobs) else math.inf
        if ends and ends[0][0] <= now:
            now = ends[0][0]
        while ends and ends[0][0] <= now:
            _, number, cluster = heapq.heappop(ends)
            free[cluster] += jobs[number].slots
        while arrived < len(jobs) and jobs[arrived].submitted <= now:
            heapq.heappush(queues.setdefault(jobs[arrived].slots, []), arrived)
            arrived += 1
        while (width := _next_width(queues, max(free), pass_by=pass_by)) is not None:
            number = heapq.heappop(queues[width])
            cluster = min((c for c in range(len(free)) if free[c] >= width), key=lambda c: free[c])
            free[cluster] -= width
            waits[number] = now - jobs[number].submitted
            heapq.heappush(ends, (now + jobs[number].run_s, number, cluster))
    return waits


def _next_width(queues: dict[int, list[int]], room: int, *, pass_by: bool) -> int | None:
    """Return the width of the oldest job that may start."""
    heads = {queue[0]: width for width, queue in queues.items() if queue and (width <= room or not pass_by)}
    width = heads[min(heads)] if heads else None
    return width if width is not None and width <= room else None


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def compared(workload: Workload, *, mean_at_most: float | None, longest_at_most: float | None) -> list[Line]:
    """Replay a workload and compare it with its bounds."""
    ours = Replay(workload).run()
    pooled = in_order(workload.jobs, [sum(workload.slots)], pass_by=True)
    strict = in_order(workload.jobs, workload.slots, pass_by=False)
    name = f"{workload.name}, {len(workload.jobs):,} jobs on {len(workload.slots)} clusters"
    return [
        Line(
            what=f"{name}: mean wait / one pooled cluster",
            value=mean(ours) / max(mean(pooled), 1e-9),
            unit="×",
            at_most=mean_at_most,
        ),
        Line(
            what=f"{name}: longest wait / strict order of arrival",
            value=max(ours) / max(*strict, 1e-9),
            unit="×",
            at_most=longest_at_most,
        ),
    ]


def measure(size: Size) -> Report:
    """Replay the traces."""
    if size is Size.SMOKE:
        lines = compared(made_up(300), mean_at_most=None, longest_at_most=None)
    elif not DIRECTORY.is_dir():
        raise SystemExit(f"no traces in {DIRECTORY}; set RAYMC_TRACES to the directory that has them")
    else:
        lines = compared(kth(), mean_at_most=1.35, longest_at_most=2.0)
        lines += compared(lcg(WINDOW), mean_at_most=1.02, longest_at_most=None)
        lines += compared(surf(WINDOW), mean_at_most=1.02, longest_at_most=None)
    return Report(name="traces", lines=tuple(lines), notes=("no delay between decision, start and end",))


if __name__ == "__main__":
    main(measure)
