"""One pass of the planner over a long queue, against loops that decide about every job one by one.

The naive loop asks every cluster about every job; plan.py, the definition of what is right, remembers the
answers that clusters gave to jobs of one shape. All three make the same choices, which is checked. Seconds
are processor time: nothing here waits for anything, and other programs on the machine should not count.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice

from benchmarks.measure import Report, Size, in_turns, main, ratio, summary
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec, Health
from ray_multicluster_scheduler.model.decision import ClusterView, QueuedJob
from ray_multicluster_scheduler.policy.backlog import Backlog
from ray_multicluster_scheduler.policy.feasible import objection
from ray_multicluster_scheduler.policy.ledger import open_rooms, total_capacity
from ray_multicluster_scheduler.policy.order import FairOrder
from ray_multicluster_scheduler.policy.placing import placements
from ray_multicluster_scheduler.policy.plan import PlanRules, plan
from ray_multicluster_scheduler.policy.score import score

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


def backlog_of(queue: Sequence[QueuedJob]) -> Backlog:
    backlog = Backlog()
    for job in queue:
        backlog.put(job)
    return backlog


def one_pass(backlog: Backlog, views: Sequence[ClusterView]) -> tuple[float, int]:
    """Return the seconds of a pass over all waiting jobs, and how many it placed."""
    started = time.process_time()
    placed = sum(1 for _ in placements(backlog.lines(now=NOW), views, now=NOW, rules=RULES, in_use={}))
    return time.process_time() - started, placed


def naive_choices(queue: Sequence[QueuedJob], views: Sequence[ClusterView]) -> list[tuple[str, str]]:
    """Ask every cluster about every job, and remember nothing."""
    rooms, chosen = open_rooms(views), []
    order = FairOrder(queue, total=total_capacity(rooms), in_use={})
    for job in order:
        able = [room for room in rooms if objection(job, room, RULES) is None]
        if able:
            best = min(able, key=lambda room: (-score(job, room, RULES).total, room.name))
            best.place(job.claim)
            order.charge(job)
            chosen.append((job.submission_id, best.name))
    return chosen


def naive_pass(queue: Sequence[QueuedJob], views: Sequence[ClusterView]) -> float:
    """Return the seconds of the naive loop over a queue."""
    started = time.process_time()
    naive_choices(queue, views)
    return time.process_time() - started


def reference_pass(queue: Sequence[QueuedJob], views: Sequence[ClusterView]) -> float:
    """Return the seconds of plan.py over a queue: it remembers what clusters said to jobs of one shape."""
    started = time.process_time()
    plan(queue, views, now=NOW, rules=RULES, in_use={})
    return time.process_time() - started


def same_choices(queue: Sequence[QueuedJob], views: Sequence[ClusterView]) -> bool:
    """Tell whether all place the same jobs on the same clusters."""
    slow = plan(queue, views, now=NOW, rules=RULES, in_use={}).placements
    fast = placements(backlog_of(queue).lines(now=NOW), views, now=NOW, rules=RULES, in_use={})
    reference = [(p.submission_id, p.cluster) for p in slow]
    return reference == [(p.submission_id, p.cluster) for p in fast] == naive_choices(queue, views)


def measure(size: Size) -> Report:
    """Measure the planner."""
    lines, per_decision = [], {}
    queue = jobs(LONG[size])
    backlog = backlog_of(queue)
    few = list(islice(queue, NAIVE_JOBS[size]))
    short = backlog_of(few)
    most = CLUSTERS[size][-1]
    for count in CLUSTERS[size]:
        views = clusters(count)
        passes = [one_pass(backlog, views) for _ in range(ROUNDS[size])]
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
            "reference": lambda: reference_pass(few, views),
        },
        rounds=ROUNDS[size],
    )
    sizes = f"{len(few):,} jobs, {most:,} clusters"
    lines.append(ratio(f"naive loop / ours, {sizes}", sides["naive"], sides["ours"], at_least=50))
    lines.append(ratio(f"plan.py / ours, {sizes}", sides["reference"], sides["ours"]))
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
