"""A program for the older package: actors are waited for, results and states are asked for by their ids."""

import time
from typing import Any

import ray
from common import CONFIG, answer

from ray_multicluster_scheduler.app.client_api import (
    cancel_task,
    get_actor_result,
    get_actor_status,
    get_task_result,
    initialize_scheduler_environment,
    submit_actor,
    submit_actor_async,
    submit_task,
)


class Counter:
    """Ready at once, after a while, or never."""

    def __init__(self, start: int = 0, pause_s: float = 0.0) -> None:
        time.sleep(pause_s)
        if start < 0:
            raise ValueError("no negative start")
        self.value = start

    def add(self, number: int) -> tuple[int, str]:
        self.value += number
        return self.value, ray.get_runtime_context().gcs_address


def square(number: int) -> int:
    if number < 0:
        raise KeyError("negative")
    return number * number


def both(number: int) -> tuple[int, int]:
    return number, -number


def refusal(function: Any, *args: Any, **kwargs: Any) -> list[str]:
    """The kinds of error that a call raises, and its words."""
    try:
        function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return [*(kind.__name__ for kind in type(error).__mro__), str(error)]
    return []


def forever() -> None:
    while True:
        time.sleep(0.1)  # Ray cannot interrupt a longer one


def cancelled_at_once() -> list[str]:
    task_id, ref = submit_task(forever)
    cancel_task(task_id)
    return refusal(ray.get, ref, timeout=60)


def actors(cluster: str) -> dict[str, Any]:
    actor_id, held = submit_actor(Counter, args=(40,), preferred_cluster=cluster, timeout=120)
    status, asked = get_actor_status(actor_id), time.monotonic()
    while status != "ALIVE" and time.monotonic() < asked + 30:
        time.sleep(0.2)
        status = get_actor_status(actor_id)
    same = get_actor_result(actor_id)
    return {
        "status": status,
        "same": same is held,
        "value": ray.get(same.add.remote(2)),
        "late": refusal(submit_actor, Counter, (1, 60.0), preferred_cluster=cluster, timeout=2),
        "broken": refusal(submit_actor, Counter, (-1,), preferred_cluster=cluster, timeout=120),
    }


def main() -> None:
    scheduler = initialize_scheduler_environment(CONFIG)
    task_id, ref = submit_task(square, args=(7,))
    pair, refs = submit_task(both, args=(3,), num_returns=2)
    failing, wrong = submit_task(square, args=(-1,))
    gone = submit_task(square, args=(2,))[0]
    home = scheduler.tasks.operations.explain(task_id)["cluster"]
    other = next(spec.name for spec in scheduler.config.clusters if spec.name != home)
    found = {
        "result": get_task_result(task_id, timeout=120),
        "pair": get_task_result(pair),
        "failing": refusal(get_task_result, failing),
        "unknown": refusal(get_task_result, "task_x"),
        "home": actors(home),
        "away": actors(other),
        "async": ray.get((not_waited_for := submit_actor_async(Counter)[1]).add.remote(1))[0],
    }
    deadline = time.monotonic() + 60
    while not (lost := refusal(get_task_result, gone)) and time.monotonic() < deadline:
        time.sleep(1)  # the scheduler itself holds the ref for a moment
    del ref, refs, wrong, not_waited_for
    answer({**found, "gone": lost, "cancelled": cancelled_at_once()})
    scheduler.stop()


main()
