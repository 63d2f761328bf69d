"""`map_over_clusters` against two plain `ray.util.ActorPool`, one for each cluster; its first item."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks.home import HOME, OTHER, joined
from benchmarks.measure import Report, Size, in_turns, main, ratio, summary
from ray_multicluster_scheduler import map_over_clusters
from ray_multicluster_scheduler.local import Sandbox
from ray_multicluster_scheduler.testing import InProcessClusters

ROUNDS = {Size.SMOKE: 1, Size.QUICK: 5, Size.FULL: 9}
ITEMS = {Size.SMOKE: 8_000, Size.QUICK: 100_000, Size.FULL: 100_000}
IN_PROCESS_ITEMS = {Size.SMOKE: 10_000, Size.QUICK: 1_000_000, Size.FULL: 1_000_000}
CHUNK = 500
#: What `joined` gives each cluster.
WORKERS = 4
SLOTS = 2 * WORKERS
SLOW_S = 0.1
SLOW_ITEMS = {Size.SMOKE: 32, Size.QUICK: 400, Size.FULL: 1_000}
#: An item that only starts workers, and takes a moment, so that it needs all of them.
WARM, WARM_S = -1, 0.001


def nothing(item: int) -> int:
    """The least that can be done with an item; of one that warms up, the process that has done it."""
    if item != WARM:
        return item
    time.sleep(WARM_S)
    return -os.getpid()


def slow(item: int) -> int:
    """Something that takes its time."""
    time.sleep(SLOW_S)
    return -os.getpid() if item == WARM else item


def per_second(func: Callable[[int], int], count: int, chunk: int | None) -> float:
    """Return how many items per second come out of a map whose workers all run already."""
    taken, begun, processes = 0, 0.0, set[int]()

    def source() -> Iterator[int]:
        nonlocal begun
        sent = 0
        while len(processes) < SLOTS or sent % (chunk or 1):
            sent += 1
            yield WARM
        while taken < sent:
            time.sleep(0.001)
        begun = time.perf_counter()
        yield from range(count)

    results = set[int]()
    for result in map_over_clusters(func, source(), chunk=chunk, ordered=False, progress=False):
        taken += 1
        if result < 0:
            processes.add(result)
        else:
            results.add(result)
    took = time.perf_counter() - begun
    assert results == set(range(count))
    return count / took


def whole(count: int) -> float:
    """Return how many items per second there are with the start of the workers, and chunks of any size."""
    begun = time.perf_counter()
    assert sum(1 for _ in map_over_clusters(nothing, range(count), progress=False)) == count
    return count / (time.perf_counter() - begun)


def pool_main(address: str) -> None:
    """Be the plain program on one cluster: maps as it is told on its input, and tells when it is done."""
    import ray  # noqa: PLC0415
    from ray.util import ActorPool  # noqa: PLC0415

    ray.init(address, logging_level="ERROR", log_to_driver=False)

    @ray.remote
    class Worker:
        def run(self, items: list[int]) -> list[int]:
            return [nothing(item) for item in items]

    pool = ActorPool([Worker.remote() for _ in range(WORKERS)])
    for line in sys.stdin:
        first, end = json.loads(line)
        chunks = [list(range(at, min(at + CHUNK, end))) for at in range(first, end, CHUNK)]
        found = [
            item for done in pool.map(lambda worker, chunk: worker.run.remote(chunk), chunks) for item in done
        ]
        assert found == list(range(first, end))
        print("done", flush=True)


@contextmanager
def plain_pools(sandbox: Sandbox) -> Iterator[Callable[[int], float]]:
    """Run `pool_main` for each cluster; yields a function that maps on both at the same time."""
    with ExitStack() as undo:
        pools = []
        threads = undo.enter_context(ThreadPoolExecutor(2))
        for name in (HOME, OTHER):
            address = sandbox.heads[name].gcs_address
            command = [sys.executable, "-c", f"from benchmarks.map import pool_main; pool_main({address!r})"]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            process = undo.enter_context(subprocess.Popen(command, **pipes))
            undo.callback(process.stdin.close)
            pools.append(process)

        def ask(process: subprocess.Popen[str], first: int, end: int) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps([first, end]) + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"

        def both(count: int) -> float:
            begun = time.perf_counter()
            half = count // 2
            for asked in [threads.submit(ask, pools[0], 0, half), threads.submit(ask, pools[1], half, count)]:
                asked.result()
            return count / (time.perf_counter() - begun)

        yield both


OURS_FROM_COLD = """
from ray_multicluster_scheduler import map_over_clusters
print(next(map_over_clusters(lambda item: -item, [-7], progress=False)), flush=True)
"""
PLAIN_FROM_COLD = """
import ray
ray.init({address!r}, log_to_driver=False)
print(ray.get(ray.remote(lambda item: -item).remote(-7)), flush=True)
"""


def from_cold(program: str, sandbox: Sandbox) -> float:
    """Return how long a new program takes to its first result, in seconds."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RAY_MULTICLUSTER_")}
    environ["RAY_MULTICLUSTER_CONFIG"] = str(sandbox.config_path)
    environ["RAY_MULTICLUSTER_HOME"] = os.environ["RAY_MULTICLUSTER_HOME"] + "-cold"
    begun = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "7\n"
        return time.perf_counter() - begun


def in_process(count: int) -> float:
    """Return how many items per second go through clusters inside this process."""
    with InProcessClusters({"a": {"CPU": 2}, "b": {"CPU": 2}}):
        begun = time.perf_counter()
        assert sum(1 for _ in map_over_clusters(abs, iter(range(count)), progress=False)) == count
        return count / (time.perf_counter() - begun)


def measure(size: Size) -> Report:
    """Measure the rate of a no-op and of a slow function, and the time to the first item."""
    rounds, items = ROUNDS[size], ITEMS[size]
    with joined() as sandbox:
        with plain_pools(sandbox) as pools:
            pools(SLOTS * CHUNK)  # starts the actors
            sides = {"ours": lambda: per_second(nothing, items, CHUNK), "pools": lambda: pools(items)}
            rates = in_turns(sides, rounds=rounds)
        alone = {
            "slow": lambda: per_second(slow, SLOW_ITEMS[size], None),
            "adaptive": lambda: per_second(nothing, items, None),
            "whole": lambda: whole(items),
        }
        rates |= in_turns(alone, rounds=max(1, rounds // 2))
        address = f"ray://{sandbox.heads[HOME].client_address}"
        cold = in_turns(
            {
                "ours": lambda: from_cold(OURS_FROM_COLD, sandbox),
                "plain": lambda: from_cold(PLAIN_FROM_COLD.format(address=address), sandbox),
            },
            rounds=rounds,
        )
    bound = SLOTS / SLOW_S
    local = [in_process(IN_PROCESS_ITEMS[size]) for _ in range(max(1, rounds // 2))]
    return Report(
        name="map",
        lines=(
            ratio("no-op items/s, ours ÷ two ActorPool.map", rates["ours"], rates["pools"], at_least=0.7),
            ratio(
                "items/s of 100 ms each ÷ slots ÷ duration",
                rates["slow"],
                [bound] * len(rates["slow"]),
                at_least=0.95,
            ),
            ratio("first item from cold ÷ ray.init and one task", cold["ours"], cold["plain"], at_most=1.3),
            summary("no-op, ours", rates["ours"], unit="items/s"),
            summary("no-op, ours, chunks of its own choice", rates["adaptive"], unit="items/s"),
            summary("no-op, ours, with the start of the workers", rates["whole"], unit="items/s"),
            summary("no-op, two ActorPool.map", rates["pools"], unit="items/s"),
            summary("no-op, clusters inside the process", local, unit="items/s"),
            summary("first item from cold, ours", cold["ours"], unit="s"),
            summary("first item from cold, ray.init and one task", cold["plain"], unit="s"),
        ),
        notes=(
            f"Two clusters with {WORKERS} CPUs each, which share the cores of one machine with the program. "
            f"Rates are those of workers that run already, and chunks have {CHUNK} items, unless it says "
            "otherwise. From cold: a new process, its imports included, until it has printed the result.",
        ),
    )


if __name__ == "__main__":
    main(measure)
