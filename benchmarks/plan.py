"""One pass of the planner over a long queue, against loops that decide about every job one by one.

The naive loop asks every cluster about every job; both make the same choices, which is checked. A queue in
which every job has waited too long is measured beside a young one. Seconds are processor time: nothing here
waits for anything, and other programs on the machine should not count.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from benchmarks.measure import Report, Size, in_turns, main, ratio, summary
from benchmarks.naive import naive_plan
from ray_multicluster_scheduler.core.placement.plan import placements
from ray_multicluster_scheduler.core.placement.queue import JobQueue, queue_of
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec, Health
from ray_multicluster_scheduler.model.decision import ClusterView, Holding, QueuedJob

NOW = 1_700_000_000.0
SHAPES = 200
USERS = 10
RULES = PlanRules()
#: Placements per cluster and pass: what the pace of starts lets through.
ALLOWANCE = 2
#: Jobs on which all three are compared with each number of clusters.
CHECKED = 100
ROUNDS = {Size.SMOKE: 1, Size.QUICK: 3, Size.FULL: 5}
LONG = {Size.SMOKE: 1_000, Size.QUICK: 1_000_000, Size.FULL: 1_000_000}
#: How many jobs the plain loop is given: it decides about each of them, so that its cost per job is known.
NAIVE_JOBS = {Size.SMOKE: 50, Size.QUICK: 600, Size.FULL: 2_000}
#: Clusters and kinds of jobs with which an old queue is compared with a young one.
OLD = {Size.SMOKE: ((10, 20),), Size.QUICK: ((40, 400), (200, 400)), Size.FULL: ((40, 400), (200, 400))}
CLUSTERS = {Size.SMOKE: (10,), Size.QUICK: (10, 100, 1_000), Size.FULL: (10, 100, 1_000)}


def clusters(count: int) -> list[ClusterView]:
    """Return healthy clusters of different sizes, every fourth with GPUs."""
    views = []
    for number in range(count):
        name = f"cluster-{number:04}"
        total = {"CPU": 16.0 + number % 48, "memory": 64.0 * 2**30, "GPU": float(4 * (number % 4 == 0))}
        views.append(
            ClusterView(
                spec=ClusterSpec(
                    name=name, head_address="h:1", dashboard="http://h", max_running_jobs=50, weight=1.0
                ),
                snapshot=ClusterSnapshot(
                    name=name, health=Health.HEALTHY, score=1.0, total=total, used={}, ray_version="2.60.0"
                ),
                allowance=ALLOWANCE,
            )
        )
    return views


def jobs(count: int) -> list[QueuedJob]:
    """Return jobs of 200 shapes from ten users, mixed."""
    claims = [
        {
            "CPU": 1.0 + shape % 8,
            "memory": float(1 + shape // 8) * 2**28,
            **({"GPU": 1.0} if shape % 5 == 0 else {}),
        }
        for shape in range(SHAPES)
    ]
    return [
        QueuedJob(
            submission_id=f"job-{seq}",
            seq=seq,
            user=f"user-{seq % USERS}",
            priority=0,
            waiting_since=NOW,
            claim=claims[seq * 7919 % SHAPES],
        )
        for seq in range(count)
    ]


def one_pass(queue: JobQueue, views: Sequence[ClusterView], *, now: float = NOW) -> tuple[float, int]:
    """Return the seconds of a pass over all waiting jobs, and how many it placed."""
    started = time.process_time()
    placed = sum(1 for _ in placements(queue.lines(now=now), views, now=now, rules=RULES, in_use={}))
    return time.process_time() - started, placed


def naive_choices(queue: Sequence[QueuedJob], views: Sequence[ClusterView]) -> list[tuple[str, str]]:
    """Ask every cluster about every job, and remember nothing."""
    chosen = naive_plan(queue, views, now=NOW, rules=RULES, in_use={})
    return [(job, cluster) for job, cluster in chosen if cluster is not None]


def naive_pass(queue: Sequence[QueuedJob], views: Sequence[ClusterView]) -> float:
    """Return the seconds of the naive loop over a queue."""
    started = time.process_time()
    naive_choices(queue, views)
    return time.process_time() - started


def same_choices(queue: Sequence[QueuedJob], views: Sequence[ClusterView]) -> bool:
    """Tell whether both place the same jobs on the same clusters."""
    ours = placements(queue_of(queue).lines(now=NOW), views, now=NOW, rules=RULES, in_use={})
    return [(each.submission_id, each.cluster) for each in ours] == naive_choices(queue, views)


def full_clusters(count: int) -> list[ClusterView]:
    """Return clusters on which live jobs of ours hold everything but one CPU of the first one."""
    views = []
    for number, view in enumerate(clusters(count)):
        total = dict(view.snapshot.total or {})
        held = {**total, "CPU": total["CPU"] - (number == 0)}
        holding = (Holding(held, NOW - 60),)
        views.append(replace(view, reserved=held, live_jobs=1, holdings=holding, allowance=None))
    return views


def old_and_young(size: Size, count: int, shapes: int) -> tuple[list[float], list[float]]:
    """Return the seconds of passes over the same queue when it is old and when it is young."""
    claims = [{"CPU": 1.0 + shape % 16, "memory": float(1 + shape // 16) * 2**20} for shape in range(shapes)]
    waiting = [
        replace(job, claim=claims[job.seq % shapes], user=f"user-{job.seq % shapes % USERS}")
        for job in jobs(20 * shapes)
    ]
    queue, views, later = queue_of(waiting), full_clusters(count), NOW + 2 * RULES.starvation_after_s
    sides = in_turns(
        {
            "old": lambda: one_pass(queue, views, now=later)[0],
            "young": lambda: one_pass(queue, views)[0],
        },
        rounds=5 * ROUNDS[size],
    )
    return sides["old"], sides["young"]


def measure(size: Size) -> Report:
    """Measure the planner."""
    lines, per_decision = [], {}
    queue = jobs(LONG[size])
    whole = queue_of(queue)
    few = list(islice(queue, NAIVE_JOBS[size]))
    short = queue_of(few)
    most = CLUSTERS[size][-1]
    for count in CLUSTERS[size]:
        views = clusters(count)
        passes = [one_pass(whole, views) for _ in range(ROUNDS[size])]
        per_decision[count] = [seconds / placed for seconds, placed in passes]
        target = {"at_most": 1.0} if count == 1_000 else {}
        what = f"one pass: {LONG[size]:,} queued jobs of {SHAPES} shapes, {count:,} clusters"
        lines.append(summary(what, [seconds for seconds, _ in passes], unit="s", **target))
        if not same_choices(few[:CHECKED], views):
            raise AssertionError(f"other choices than the plain loop with {count} clusters")
    views = clusters(most)
    sides = in_turns(
        {
            "ours": lambda: one_pass(short, views)[0],
            "naive": lambda: naive_pass(few, views),
        },
        rounds=ROUNDS[size],
    )
    sizes = f"{len(few):,} jobs, {most:,} clusters"
    lines.append(ratio(f"naive loop / ours, {sizes}", sides["naive"], sides["ours"], at_least=50))
    for count, shapes in OLD[size]:
        old, young = old_and_young(size, count, shapes)
        what = f"a queue in which all have waited too long / a young one, {count} clusters, {shapes} kinds"
        lines.append(ratio(what, old, young, at_most=1.5))
    lines.append(
        ratio(
            f"per placement: {most:,} clusters / {CLUSTERS[size][0]}",
            per_decision[most],
            per_decision[CLUSTERS[size][0]],
            at_most=1.5,
        )
    )
    return Report(
        name="plan", lines=tuple(lines), notes=(f"up to {ALLOWANCE} placements per cluster and pass",)
    )


if __name__ == "__main__":
    main(measure)
