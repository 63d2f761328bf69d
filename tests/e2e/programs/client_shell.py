"""A stock Ray Client program that does what it is told on stdin: a name and its arguments, as a JSON list."""

import json
import os
import sys
import time
from typing import Any

import ray
from client_common import answer, connect


@ray.remote(num_cpus=0)
def look() -> dict[str, Any]:
    return {
        "gcs": ray.get_runtime_context().gcs_address,
        "cluster": os.environ.get("RAY_MULTICLUSTER_CLUSTER"),
        "home_dir": os.environ.get("home_dir"),  # noqa: SIM112 - as in the documentation
        "environ": dict(os.environ),
    }


@ray.remote(num_cpus=0)
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count

    def pid(self) -> int:
        return os.getpid()


@ray.remote(num_cpus=0)
def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


counters: list[Any] = []


def where() -> Any:
    return ray.get(look.remote())


def add() -> Any:
    """Count in an actor that lives as long as the session."""
    if not counters:
        counters.append(Counter.remote())
    return ray.get(counters[0].add.remote())


def actor_pid() -> Any:
    return ray.get(counters[0].pid.remote())


def slept(seconds: float) -> Any:
    return ray.get(sleep.remote(seconds))


def cpus() -> Any:
    return ray.cluster_resources()["CPU"]


def end() -> None:
    ray.shutdown()


COMMANDS = {each.__name__: each for each in (where, add, actor_pid, slept, cpus, end)}

if answer(connect):
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        answer(lambda name=name, arguments=arguments: COMMANDS[name](*arguments))
