"""`submit_task` at home against a bare `.remote()`: what does choosing a cluster cost?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.home import joined
from benchmarks.measure import Report, Size, in_turns, main, ratio, summary
from ray_multicluster_scheduler import submit_task

ROUNDS = {Size.SMOKE: 1, Size.QUICK: 7, Size.FULL: 15}
TASKS = {Size.SMOKE: 20, Size.QUICK: 500, Size.FULL: 2_000}
#: So little that home always has room, on both sides.
CPUS = 0.001


def nothing() -> None:
    """The least that a task can do."""


def run(submit: Callable[[], Any], tasks: int) -> tuple[float, float]:
    """Return tasks per second, from the first submit to the last result, and the median submit in µs."""
    import ray  # noqa: PLC0415

    took, refs = [], []
    started = time.perf_counter()
    for _ in range(tasks):
        before = time.perf_counter()
        refs.append(submit())
        took.append(time.perf_counter() - before)
    ray.get(refs)
    return tasks / (time.perf_counter() - started), statistics.median(took) * 1e6


def measure(size: Size) -> Report:
    """Measure the rate of tasks and the time of one submit, both sides in turns."""
    tasks = TASKS[size]
    medians: dict[str, list[float]] = {"ours": [], "bare": []}
    with joined():
        import ray  # noqa: PLC0415

        bare = ray.remote(nothing).options(num_cpus=CPUS)

        def side(name: str, submit: Callable[[], Any]) -> Callable[[], float]:
            def once() -> float:
                rate, median = run(submit, tasks)
                medians[name].append(median)
                return rate

            return once

        sides = {
            "ours": side("ours", lambda: submit_task(nothing, resource_requirements={"CPU": CPUS})[1]),
            "bare": side("bare", bare.remote),
        }
        for each in sides.values():
            each()  # the first tasks start the workers
        medians = {"ours": [], "bare": []}
        rates = in_turns(sides, rounds=ROUNDS[size])
    added = [ours - theirs for ours, theirs in zip(medians["ours"], medians["bare"], strict=True)]
    return Report(
        name="place",
        lines=(
            ratio(
                "tasks/s at home, submit_task ÷ bare .remote()", rates["ours"], rates["bare"], at_least=0.9
            ),
            summary("added to one submit, p50", added, unit="µs", at_most=200),
            summary("bare .remote(), p50", medians["bare"], unit="µs"),
        ),
    )


if __name__ == "__main__":
    main(measure)
