"""Calls of an actor: native Ray at home, ours at home, ours across clusters, and plain Ray Client."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.home import HOME, OTHER, joined
from benchmarks.measure import Report, Size, in_turns, main, ratio, summary
from ray_multicluster_scheduler import submit_actor
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.tasks.home import connect

ROUNDS = {Size.SMOKE: 1, Size.QUICK: 5, Size.FULL: 9}
#: Calls that wait for each other, and calls that do not.
SYNC = {Size.SMOKE: 5, Size.QUICK: 50, Size.FULL: 200}
PIPELINED = {Size.SMOKE: 20, Size.QUICK: 1_000, Size.FULL: 5_000}
#: Ray Client gives up its refs one message each, after its calls: that must not be counted as ours.
PAUSE_S = {Size.SMOKE: 0.0, Size.QUICK: 1.5, Size.FULL: 5.0}


def echo_class() -> type:
    """Return the least that an actor can do; made in a function, so that it is sent by value."""

    class Echo:
        def echo(self, value: int) -> int:
            return value

    return Echo


def async_echo_class() -> type:
    """Return the same as an async actor, which is what stands between a program and another cluster."""

    class Echo:
        async def echo(self, value: int) -> int:
            return value

    return Echo


def sync_ms(actor: Any, calls: int) -> float:
    """Return how long one call takes when each waits for the one before, in milliseconds."""
    import ray  # noqa: PLC0415

    started = time.perf_counter()
    for number in range(calls):
        ray.get(actor.echo.remote(number))
    return (time.perf_counter() - started) / calls * 1000


def per_second(actor: Any, calls: int) -> float:
    """Return how many calls per second there are when all are made at once."""
    import ray  # noqa: PLC0415

    started = time.perf_counter()
    ray.get([actor.echo.remote(number) for number in range(calls)])
    return calls / (time.perf_counter() - started)


MEASURES: dict[str, Callable[[Any, int], float]] = {"sync": sync_ms, "pipelined": per_second}


def client_main(address: str) -> None:
    """Be the plain Ray Client program: measures what it is told on its input."""
    import ray  # noqa: PLC0415

    connect(ClusterSpec(name=OTHER, head_address=address, dashboard="", max_running_jobs=1), {}, None, None)
    actor = ray.remote(echo_class()).remote()
    ray.get(actor.echo.remote(0))
    for line in sys.stdin:
        what, calls = json.loads(line)
        print(MEASURES[what](actor, calls), flush=True)


@contextmanager
def plain_client(address: str) -> Iterator[Callable[[str, int], float]]:
    """Run `client_main` in a process of its own: a program has one Ray Client connection."""
    command = [sys.executable, "-c", f"from benchmarks.bridge import client_main; client_main({address!r})"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(what: str, calls: int) -> float:
            process.stdin.write(json.dumps([what, calls]) + "\n")
            process.stdin.flush()
            return float(process.stdout.readline())

        yield ask
        process.stdin.close()


def measure(size: Size) -> Report:
    """Measure how long one call takes, and how many go through when all are made at once."""
    with joined() as sandbox, plain_client(sandbox.heads[OTHER].client_address) as client:
        import ray  # noqa: PLC0415

        native = ray.remote(echo_class()).remote()
        relay = ray.remote(num_cpus=0)(async_echo_class()).remote()
        _, near = submit_actor(echo_class(), preferred_cluster=HOME)
        _, far = submit_actor(echo_class(), preferred_cluster=OTHER)
        found = {}
        for what, calls in (("sync", SYNC[size]), ("pipelined", PIPELINED[size])):
            run = MEASURES[what]
            sides = {
                "native": lambda run=run, calls=calls: run(native, calls),
                "async": lambda run=run, calls=calls: run(relay, calls),
                "client": lambda what=what, calls=calls: client(what, calls),
                "near": lambda run=run, calls=calls: run(near, calls),
                "far": lambda run=run, calls=calls: run(far, calls),
            }
            for side in sides.values():
                side()  # the first calls start what is started once
            found[what] = in_turns(sides, rounds=ROUNDS[size], pause_s=PAUSE_S[size])
    sync, pipelined = found["sync"], found["pipelined"]
    both = zip(pipelined["async"], pipelined["native"], strict=True)
    return Report(
        name="bridge",
        lines=(
            ratio(
                "pipelined calls/s, ours across ÷ Ray Client",
                pipelined["far"],
                pipelined["client"],
                at_least=3,
            ),
            ratio("time of one call, ours across ÷ Ray Client", sync["far"], sync["client"], at_most=1.5),
            ratio(
                "pipelined calls/s, ours at home ÷ native",
                pipelined["near"],
                pipelined["native"],
                at_least=0.9,
            ),
            ratio("pipelined calls/s, native ÷ Ray Client", pipelined["native"], pipelined["client"]),
            ratio(
                "pipelined calls/s, an async and a plain native call ÷ Ray Client",
                [1 / (1 / one + 1 / other) for one, other in both],
                pipelined["client"],
            ),
            *(summary(f"pipelined, {side}", values, unit="calls/s") for side, values in pipelined.items()),
            *(summary(f"one call, {side}", values, unit="ms") for side, values in sync.items()),
        ),
        notes=(
            "Both clusters, the driver and all helpers share the cores of one machine. Each call across is "
            "a call of an async actor at home (its result is a home ObjectRef) and a plain one on the other "
            "cluster: on cores that are all busy, both together are its upper limit.",
        ),
    )


if __name__ == "__main__":
    main(measure)
