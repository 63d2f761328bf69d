"""No job: an actor at home and one on the other cluster, until the test ends or hurts this program."""

import json
import os
import time

import ray
from common import CONFIG, FOLDER, answer, note, wait_for

from ray_multicluster_scheduler import (
    initialize_scheduler_environment,
    list_actors,
    submit_actor,
    submit_task,
)


def where() -> str:
    return str(ray.get_runtime_context().gcs_address)


class Actor:
    def where(self) -> str:
        return where()


def told(action) -> str:
    """The type of what an action raises."""
    try:
        action()
    except Exception as problem:  # noqa: BLE001 - which one it is, is the question
        return type(problem).__name__
    return "nothing"


def lost(action) -> bool:
    """Call until home is known to be lost."""
    for _ in range(600):
        if told(action) != "nothing":
            return True
        time.sleep(0.1)
    return False


scheduler = initialize_scheduler_environment(CONFIG)
one_cpu = {"resource_requirements": {"CPU": 1}}
_, near = submit_actor(Actor, preferred_cluster="home", **one_cpu)
_, far = submit_actor(Actor, preferred_cluster="other", **one_cpu)
note("both", json.dumps({"pid": os.getpid(), "at": ray.get([near.where.remote(), far.where.remote()])}))
wait_for(str(FOLDER / "go-on"))
home_is_lost = lost(lambda: ray.get(far.where.remote(), timeout=100))
seen = {
    "call": told(far.where.remote),
    "task": told(lambda: submit_task(where)),
    "far task": told(lambda: submit_task(where, preferred_cluster="other")),
    "actor": told(lambda: submit_actor(Actor, preferred_cluster="other")),
    "list": told(list_actors),
    "stop": told(scheduler.stop),
}
again = initialize_scheduler_environment(CONFIG)
seen["anew"] = ray.get(submit_task(where)[1])
again.stop()
answer({**seen, "home_is_lost": home_is_lost})
