"""Examples as in the documentation of Ray, on Ray Client: they find the same with a server and without."""

import time
from collections.abc import Callable
from typing import Any

import ray
from client_common import answer, connect


def raised(what: Callable[[], Any]) -> str:
    """The first kind of error that Ray's documentation names."""
    try:
        what()
    except ray.exceptions.RayError as error:
        return type(error).__name__
    return "nothing"


@ray.remote
def square(x: int) -> int:
    return x * x


@ray.remote
def total(*parts: int) -> int:
    return sum(parts)


@ray.remote
def nested(depth: int) -> int:
    return depth if depth == 0 else 1 + ray.get(nested.options(num_cpus=0).remote(depth - 1))


@ray.remote(num_returns=3)
def three() -> tuple[int, int, int]:
    return 1, 2, 3


@ray.remote(num_cpus=0)
def slow(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@ray.remote(max_retries=0)
def wrong() -> int:
    return 1 // 0


@ray.remote
class Account:
    def __init__(self, balance: int = 0) -> None:
        self.balance = balance

    def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    @ray.method(num_returns=2)
    def both(self) -> tuple[int, int]:
        return self.balance, -self.balance

    def fail(self) -> None:
        raise ValueError("no")


@ray.remote(num_cpus=0)
class Waiting:
    """Calls of asyncio wait for each other."""

    def __init__(self) -> None:
        import asyncio

        self.event = asyncio.Event()

    async def wait(self) -> str:
        await self.event.wait()
        return "heard"

    async def send(self) -> None:
        self.event.set()


def tasks() -> Any:
    parts = [square.remote(number) for number in range(4)]
    return [
        ray.get(parts),
        ray.get(total.remote(*parts)),
        ray.get(nested.remote(3)),
        ray.get(list(three.remote())),
    ]


def objects() -> Any:
    ref = ray.put({"a": [1, 2, 3]})
    return [ray.get(ref), ray.get(total.remote(ray.put(20), ray.put(22)))]


def waiting() -> Any:
    quick, late = slow.remote(0), slow.remote(60)
    ready, rest = ray.wait([quick, late], num_returns=1, timeout=50)
    late_one = raised(lambda: ray.get(late, timeout=0.1))
    ray.cancel(late, force=True)
    return [ready == [quick], rest == [late], late_one, raised(lambda: ray.get(late)) != "nothing"]


def errors() -> Any:
    account = Account.remote()
    first = raised(lambda: ray.get(wrong.remote()))
    return [first, raised(lambda: ray.get(account.fail.remote())), ray.get(account.deposit.remote(1))]


def actors() -> Any:
    account = Account.remote(10)
    ray.get([account.deposit.remote(5) for _ in range(3)])
    both = ray.get(list(account.both.remote()))
    ray.kill(account)
    return [both, raised(lambda: ray.get(account.deposit.remote(1)))]


def named_actors() -> Any:
    Account.options(name="bank", lifetime="detached", num_cpus=0).remote(3)
    Account.options(name="bank", get_if_exists=True, num_cpus=0).remote(99)
    found = ray.get(ray.get_actor("bank").deposit.remote(1))
    names = ray.util.list_named_actors()
    ray.kill(ray.get_actor("bank"))
    return [found, names]


def asyncio_actors() -> Any:
    actor = Waiting.remote()
    heard = actor.wait.remote()
    ray.get(actor.send.remote())
    return ray.get(heard)


def cancelling() -> Any:
    asleep = slow.remote(60)
    ray.wait([asleep], timeout=3)  # Ray may lose the cancellation of a task that is about to begin
    ray.cancel(asleep)
    return raised(lambda: ray.get(asleep, timeout=50))


def generators() -> Any:
    @ray.remote(num_returns="dynamic")
    def split(count: int) -> Any:
        yield from range(count)

    return [ray.get(ref) for ref in ray.get(split.remote(3))]


def about_the_cluster() -> Any:
    context = ray.get_runtime_context()
    nodes = ray.nodes()
    return {
        "cpus": ray.cluster_resources()["CPU"],
        "some_free": ray.available_resources().get("CPU", 0) <= ray.cluster_resources()["CPU"],
        "nodes": [node["Alive"] for node in nodes],
        "on_the_node": context.get_node_id() in {node["NodeID"] for node in nodes},
        "namespace": context.namespace,
        "gcs": ray.get(ray.remote(lambda: ray.get_runtime_context().gcs_address).remote()),
        "initialized": ray.is_initialized(),
    }


def placement_groups() -> Any:
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = ray.util.placement_group([{"CPU": 1}])
    ray.get(group.ready())
    inside = PlacementGroupSchedulingStrategy(placement_group=group)
    found = ray.get(square.options(scheduling_strategy=inside).remote(5))
    ray.util.remove_placement_group(group)
    return [found, group.bundle_specs]


def queues() -> Any:
    from ray.util.queue import Queue

    queue = Queue(actor_options={"num_cpus": 0})
    queue.put_nowait("first")
    queue.put("second")
    found = [queue.get(), queue.qsize(), queue.get(timeout=50)]
    queue.shutdown()
    return found


def internal_kv() -> Any:
    from ray.experimental import internal_kv

    key = f"example-{time.time_ns()}"
    internal_kv._internal_kv_put(key, "value")
    found = internal_kv._internal_kv_get(key).decode()
    internal_kv._internal_kv_del(key)
    return [found, internal_kv._internal_kv_exists(key)]


EXAMPLES = [
    tasks,
    objects,
    waiting,
    errors,
    actors,
    named_actors,
    asyncio_actors,
    cancelling,
    generators,
    about_the_cluster,
    placement_groups,
    queues,
    internal_kv,
]


def found(example: Callable[[], Any]) -> Any:
    """What an example returns; an error that Ray itself would raise is part of the comparison."""
    try:
        return example()
    except Exception as error:  # noqa: BLE001 - compared with what comes without a server
        return f"raised {type(error).__name__}: {error}"[:200]


def everything() -> dict[str, Any]:
    connect()
    return {example.__name__: found(example) for example in EXAMPLES}


answer(everything)
