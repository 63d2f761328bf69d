"""A stock Ray Client program that uses most of Ray, and says what it found."""

import os
from typing import Any

import numpy as np
import ray
from client_common import answer, connect
from ray.util import ActorPool

#: 100 MB.
LARGE = 100 * 10**6 // 8


@ray.remote
def look() -> dict[str, Any]:
    import only_at_home  # a module of the directory that the client has sent

    return {
        "gcs": ray.get_runtime_context().gcs_address,
        "home_dir": os.environ["home_dir"],  # noqa: SIM112 - as in the documentation
        "mine": os.environ["MINE"],
        "module": only_at_home.WORD,
    }


@ray.remote
def double(value: Any) -> Any:
    return value * 2


@ray.remote
class Counter:
    def __init__(self, start: int = 0) -> None:
        self.count = start

    def add(self, amount: int) -> int:
        self.count += amount
        return self.count

    def home_dir(self) -> str:
        return os.environ["home_dir"]  # noqa: SIM112 - as in the documentation


class MineError(Exception):
    """An error of the program."""


@ray.remote
def fail() -> None:
    raise MineError("as planned")


@ray.remote(num_returns="dynamic")
def several(count: int) -> Any:
    for number in range(count):
        yield number * number


def failure() -> list[str]:
    try:
        ray.get(fail.remote())
    except MineError as error:
        return [kind.__name__ for kind in type(error).__mro__] + [str("as planned" in str(error))]
    return []


def large() -> list[float]:
    """Send an array to the cluster, and get another one of the same size back."""
    sent = np.ones(LARGE)
    got = ray.get(double.remote(ray.put(sent)))
    return [float(got.nbytes), float(got.sum())]


def work() -> Any:
    connect()
    found: dict[str, Any] = {"look": ray.get(look.remote())}
    found["tasks"] = ray.get([double.remote(number) for number in range(10)])
    counter = Counter.remote(5)
    found["actor"] = ray.get([counter.add.remote(1), counter.add.remote(2)])
    found["actor_home_dir"] = ray.get(counter.home_dir.remote())
    ray.kill(counter)
    named = Counter.options(name="known").remote()
    found["named"] = ray.get(ray.get_actor("known").add.remote(7))
    found["large"] = large()
    ray.kill(named)
    pool = ActorPool([Counter.options(num_cpus=0.5).remote() for _ in range(2)])
    found["pool"] = list(pool.map(lambda actor, value: actor.add.remote(value * 100), range(1, 5)))
    found["failure"] = failure()
    found["generator"] = [ray.get(ref) for ref in ray.get(several.remote(4))]
    ray.shutdown()
    return found


answer(work)
