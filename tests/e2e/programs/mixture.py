"""Everything that a handle and a ref of another cluster must be good for, in one job."""

import asyncio
import gc
import time
import traceback
from typing import Any

import numpy as np
import ray
from common import CONFIG, answer, here

from ray_multicluster_scheduler import (
    cancel_task,
    get_task_status,
    initialize_scheduler_environment,
    kill_actor,
    list_actors,
    submit_actor,
    submit_task,
)

MEGABYTES = 100


class OwnError(Exception):
    """Known to this program only."""


class Worker:
    def __init__(self, start: int = 0) -> None:
        self.seen = [start]

    def where(self) -> str:
        return here()

    def add(self, value: int) -> int:
        self.seen.append(value)
        return len(self.seen)

    def all_seen(self) -> list[int]:
        return self.seen

    def total(self, values: Any) -> float:
        return float(values.sum())

    def ones(self, megabytes: int) -> Any:
        return np.ones(megabytes * 10**6, dtype=np.uint8)

    def get_inside(self, refs: list[Any]) -> int:
        return sum(ray.get(refs))

    def put_inside(self, value: int) -> list[Any]:
        return [ray.put(value)]

    @ray.method(num_returns=2)
    def two(self) -> tuple[str, str]:
        return "first", "second"

    def fail(self, kind: str) -> None:
        raise {"value": ValueError, "own": OwnError}[kind](kind)

    def sleep(self, seconds: float) -> str:
        time.sleep(seconds)
        return "slept"

    def call(self, other: Any) -> str:
        return ray.get(other.where.remote())

    def yielding(self) -> Any:
        yield 1

    def key(self) -> str:
        """Our own handle has a key too."""
        return "the user's"


class Patient:
    """An async actor: a call that waits does not hold up the others."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def wait(self) -> str:
        await self.opened.wait()
        return "opened"

    async def open(self) -> None:
        self.opened.set()


def where() -> str:
    return here()


def at_home(handle: Any) -> str:
    return ray.get(handle.where.remote())


def forever() -> None:
    while True:
        time.sleep(0.1)


def caught(call: Any) -> list[str]:
    """The names of all types that an `except` clause could catch this by."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - which one it is, is the question
        return [kind.__name__ for kind in type(error).__mro__]
    return []


def until(what: Any) -> Any:
    ends_at = time.monotonic() + 60
    while not (value := what()) and time.monotonic() < ends_at:
        time.sleep(0.2)
    return value


class Checks:
    """One method per thing to show; each returns what the test looks at."""

    def __init__(self) -> None:
        _, self.near = submit_actor(Worker, preferred_cluster="home")
        _, self.far = submit_actor(Worker, preferred_cluster="other")
        self.third_id, self.third = submit_actor(ray.remote(num_cpus=0)(Worker), preferred_cluster="third")

    def one_get(self) -> Any:
        _, task = submit_task(where, preferred_cluster="third", resource_requirements={"CPU": 0.1})
        return [
            here(),
            *ray.get([self.near.where.remote(), self.far.where.remote(), self.third.where.remote(), task]),
        ]

    def one_wait(self) -> Any:
        slow = self.far.sleep.remote(60)
        quick = [self.near.where.remote(), self.third.where.remote()]
        ready, rest = ray.wait([slow, *quick], num_returns=2, timeout=60)
        kill_actor(self.far)
        _, self.far = submit_actor(Worker, preferred_cluster="other")
        return [len(ready), rest == [slow]]

    def order(self) -> Any:
        refs = [self.far.add.remote(number) for number in range(300)]
        ray.get(refs)
        return ray.get(self.far.all_seen.remote()) == [0, *range(300)]

    def a_late_argument_keeps_its_place(self) -> Any:
        _, fresh = submit_actor(Worker, preferred_cluster="other")
        _, late = submit_actor(Worker, preferred_cluster="home")
        first = fresh.add.remote(late.sleep.remote(1))
        second = fresh.add.remote("second")
        return [ray.get([first, second]), ray.get(fresh.all_seen.remote())]

    def nothing_overtakes_the_creation(self) -> Any:
        _, late = submit_actor(Worker, preferred_cluster="home")
        _, fresh = submit_actor(Worker, args=(late.sleep.remote(1),), preferred_cluster="other")
        seen = fresh.all_seen.remote()
        del fresh
        gc.collect()
        return ray.get(seen)

    def a_failed_creation(self) -> Any:
        _, impossible = submit_actor(Worker, args=(self.near,), preferred_cluster="other")
        return caught(lambda: ray.get(impossible.where.remote()))

    def any_name_of_a_method(self) -> Any:
        return ray.get(self.far.key.remote())

    def refs_as_arguments(self) -> Any:
        near_ref, far_ref = ray.put(20), self.third.add.remote(1)
        return [
            ray.get(self.far.add.remote(near_ref)) > 0,
            ray.get(self.far.get_inside.remote([near_ref, far_ref])),
            ray.get(ray.get(self.far.put_inside.remote(7))[0]),
        ]

    def large_values(self) -> Any:
        there = np.ones(MEGABYTES * 10**6, dtype=np.uint8)
        ref = ray.put(there)
        return [
            ray.get(self.far.total.remote(ref)),
            float(ray.get(self.far.ones.remote(MEGABYTES)).sum()),
        ]

    def exceptions(self) -> Any:
        return [
            caught(lambda: ray.get(self.far.fail.remote("value"))),
            caught(lambda: ray.get(self.far.fail.remote("own"))),
            caught(lambda: ray.get(submit_task(forever_wrong, preferred_cluster="other")[1])),
        ]

    def several_returns(self) -> Any:
        one, two = self.far.two.remote()
        _, refs = submit_task(lambda: (1, 2, 3), num_returns=3, preferred_cluster="other")
        return [ray.get([one, two]), ray.get(refs), ray.get(self.far.two.options(num_returns=1).remote())]

    def async_methods(self) -> Any:
        _, patient = submit_actor(Patient, preferred_cluster="other")
        waiting = patient.wait.remote()
        ray.get(patient.open.remote())
        return ray.get(waiting)

    def slow_and_fast(self) -> Any:
        _, patient = submit_actor(Patient, preferred_cluster="other")
        slow = [patient.wait.remote() for _ in range(50)]
        fast = ray.get([self.far.add.remote(number) for number in range(500)], timeout=60)
        ready, _ = ray.wait(slow, num_returns=50, timeout=0)
        patient.open.remote()
        return [len(fast), len(ready), sorted(set(ray.get(slow, timeout=60)))]

    def generators(self) -> Any:
        return caught(self.far.yielding.remote)

    def handles_travel(self) -> Any:
        _, beside = submit_actor(Worker, preferred_cluster="other")
        _, task = submit_task(at_home, args=(self.far,), preferred_cluster="home")
        return [
            ray.get(task),
            ray.get(beside.call.remote(self.far)),
            caught(lambda: ray.get(self.third.call.remote(self.far))),
            caught(lambda: ray.get(self.far.call.remote(self.near))),
        ]

    def killing(self) -> Any:
        _, victim = submit_actor(Worker, preferred_cluster="other")
        ray.get(victim.where.remote())
        kill_actor(victim)
        return caught(lambda: ray.get(victim.where.remote()))

    def names(self) -> Any:
        _, named = submit_actor(Worker, name="the-only-one", preferred_cluster="other")
        taken = caught(lambda: submit_actor(Worker, name="the-only-one", preferred_cluster="other"))
        return [ray.get(named.where.remote()), taken]

    def cancelling(self) -> Any:
        by_id, ref = submit_task(forever, preferred_cluster="other")
        _, other_ref = submit_task(forever, preferred_cluster="other")
        home_id, home_ref = submit_task(forever, preferred_cluster="home", resource_requirements={"CPU": 0.1})
        statuses = until(lambda: get_task_status(by_id) == "RUNNING")
        cancel_task(by_id, force=True)
        ray.cancel(other_ref)
        cancel_task(home_id)
        kinds = [caught(lambda each=each: ray.get(each, timeout=60)) for each in (ref, other_ref, home_ref)]
        return [statuses, kinds, until(lambda: get_task_status(by_id) == "CANCELLED")]

    def giving_up(self) -> Any:
        actor_id, dropped = submit_actor(Worker, preferred_cluster="other")
        last = dropped.sleep.remote(1)
        before = [row["actor_id"] for row in list_actors()]
        del dropped
        gc.collect()
        answered = ray.get(last)
        gone = until(lambda: actor_id not in [row["actor_id"] for row in list_actors()])
        return [actor_id in before, answered, gone]


def forever_wrong() -> None:
    raise KeyError("a task failed")


scheduler = initialize_scheduler_environment(CONFIG)
checks, found = Checks(), {}
for name in [name for name in vars(Checks) if not name.startswith("_")]:
    try:
        found[name] = getattr(checks, name)()
    except Exception:  # noqa: BLE001 - the other checks go on
        found[name] = traceback.format_exc()
    print(name, found[name], flush=True)
scheduler.stop()
answer(found)
