"""Ray Client programs through a server of ours, beside the same connected to the cluster itself."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.bridge import echo_class, per_second, sync_ms
from benchmarks.measure import Report, Size, in_turns, main, ratio, summary
from benchmarks.real import NAMES, two_clusters
from ray_multicluster_scheduler.config import load_config
from ray_multicluster_scheduler.local.sandbox import served

ROUNDS = {Size.SMOKE: 1, Size.QUICK: 6, Size.FULL: 12}
SYNC = {Size.SMOKE: 5, Size.QUICK: 100, Size.FULL: 300}
PIPELINED = {Size.SMOKE: 20, Size.QUICK: 500, Size.FULL: 1_000}
BYTES = {Size.SMOKE: 10**6, Size.QUICK: 10**8, Size.FULL: 10**8}
#: Programs that connect at the same time and stay.
CLIENTS = {Size.SMOKE: 2, Size.QUICK: 10, Size.FULL: 50}
AT_ONCE_S = 900.0
#: Ray Client gives up its refs one message each, after its calls: that must not be counted.
PAUSE_S = {Size.SMOKE: 0.0, Size.QUICK: 1.0, Size.FULL: 2.0}


def put_ms(_: Any, size: int) -> float:
    """Return how long it takes to send so many bytes to the cluster."""
    import numpy  # noqa: PLC0415
    import ray  # noqa: PLC0415

    array = numpy.frombuffer(numpy.random.default_rng(1).bytes(size), dtype=numpy.uint8)
    started = time.perf_counter()
    ray.put(array)
    return (time.perf_counter() - started) * 1000


def get_ms(_: Any, size: int) -> float:
    """Return how long it takes to fetch so many bytes from the cluster."""
    import numpy  # noqa: PLC0415
    import ray  # noqa: PLC0415

    held = ray.put(numpy.zeros(size, dtype=numpy.uint8))
    started = time.perf_counter()
    ray.get(held)
    return (time.perf_counter() - started) * 1000


MEASURES: dict[str, Callable[[Any, int], float]] = {
    "sync": sync_ms,
    "pipelined": per_second,
    "put": put_ms,
    "get": get_ms,
}


def program(address: str, options: dict[str, str]) -> None:
    """Be a Ray Client program: measures what it is told on its input."""
    import ray  # noqa: PLC0415

    ray.init(address, _metadata=list(options.items()), logging_level="ERROR", log_to_driver=False)
    actor = ray.remote(num_cpus=0)(echo_class()).remote()
    ray.get(actor.echo.remote(0))
    print("ready", flush=True)
    for line in sys.stdin:
        what, amount = json.loads(line)
        print(MEASURES[what](actor, amount), flush=True)


@contextlib.contextmanager
def running(address: str, **options: str) -> Iterator[Callable[[str, int], float]]:
    """Run `program` in a process of its own; yields a function that lets it measure something."""
    code = f"from benchmarks.client_port import program; program({address!r}, {options!r})"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"the program at {address} has not begun")

        def ask(what: str, amount: int) -> float:
            process.stdin.write(json.dumps([what, amount]) + "\n")
            process.stdin.flush()
            return float(process.stdout.readline())

        yield ask
        process.stdin.close()


@contextlib.contextmanager
def client_address(config: Path) -> Iterator[str]:
    """Run a server of these clusters; yields its address for Ray Client."""
    with tempfile.TemporaryDirectory() as folder:
        log, store = Path(folder) / "log", Path(folder) / "store"
        with served(config, log=log, store=store, options=["--client-port", "0"]):
            (address,) = re.findall(r"ray://\S+", log.read_text())
            yield address


def at_once(address: str, clients: int) -> tuple[float, int]:
    """Connect programs at the same time, each with a call; return the seconds, and how many got in."""
    settled = threading.Semaphore(0)
    leave = threading.Event()
    connected: list[None] = []

    def one() -> None:
        try:
            with running(address, **{"raymc.cpus": "0", "raymc.queue_timeout": "600"}):
                connected.append(None)
                settled.release()
                leave.wait(AT_ONCE_S)  # all of them are connected at the same time
        except RuntimeError:
            settled.release()

    started = time.perf_counter()
    threads = [threading.Thread(target=one) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for _ in threads:
        settled.acquire(timeout=AT_ONCE_S)
    took_s = time.perf_counter() - started
    leave.set()
    for thread in threads:
        thread.join()
    return took_s, len(connected)


def measure(size: Size) -> Report:
    """Measure calls and bytes through a server, and directly, in turns."""
    with two_clusters() as (_, config), client_address(config) as ours:
        spec = load_config(config).cluster(NAMES[0])
        with (  # in this order: the first direct session of a new head often fails
            running(ours, **{"raymc.cluster": spec.name}) as through,
            running(f"ray://{spec.head_address}") as direct,
        ):
            found = {}
            amounts = {"sync": SYNC, "pipelined": PIPELINED, "put": BYTES, "get": BYTES}
            for what, amount in amounts.items():
                sides = {
                    "direct": lambda what=what, amount=amount: direct(what, amount[size]),
                    "through": lambda what=what, amount=amount: through(what, amount[size]),
                }
                for side in sides.values():
                    side()
                found[what] = in_turns(sides, rounds=ROUNDS[size], pause_s=PAUSE_S[size])
        took_s, connected = at_once(ours, CLIENTS[size])
    sync, pipelined, put, get = (found[what] for what in ("sync", "pipelined", "put", "get"))
    megabytes = BYTES[size] // 10**6
    return Report(
        name="client_port",
        lines=(
            ratio(
                "one call after the other, direct ÷ through", sync["direct"], sync["through"], at_least=0.95
            ),
            ratio(
                "pipelined calls/s, through ÷ direct", pipelined["through"], pipelined["direct"], at_least=0.9
            ),
            ratio(
                f"{megabytes} MB to the cluster, direct ÷ through",
                put["direct"],
                put["through"],
                at_least=0.8,
            ),
            ratio(
                f"{megabytes} MB from the cluster, direct ÷ through",
                get["direct"],
                get["through"],
                at_least=0.8,
            ),
            summary(
                f"programs connected, of {CLIENTS[size]} that began at once",
                [connected],
                unit="",
                at_least=CLIENTS[size],
            ),
            summary("until the last one was", [took_s], unit="s"),
            *(summary(f"one call, {side}", values, unit="ms") for side, values in sync.items()),
            *(summary(f"pipelined, {side}", values, unit="calls/s") for side, values in pipelined.items()),
            *(summary(f"{megabytes} MB put, {side}", values, unit="ms") for side, values in put.items()),
            *(summary(f"{megabytes} MB got, {side}", values, unit="ms") for side, values in get.items()),
        ),
        notes=(
            "The program, the server, Ray's own proxy, its helper process and both clusters share the cores "
            "of one machine, so what the server computes is taken from the others.",
        ),
    )


if __name__ == "__main__":
    main(measure)
