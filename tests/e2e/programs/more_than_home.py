"""More actors than home has CPUs, all at work at the same time."""

import sys
from typing import Any

import ray
from common import CONFIG, FOLDER, answer, here, note, wait_for

from ray_multicluster_scheduler import (
    explain_task,
    initialize_scheduler_environment,
    list_actors,
    submit_actor,
)


class Infer:
    def infer(self, idx: int, go: str) -> tuple[int, str]:
        wait_for(go)
        return idx, here()

    def fail(self) -> None:
        raise ValueError("not this index")


def failure(call: Any) -> list[str]:
    """The names of all types by which the error of a call can be caught."""
    try:
        ray.get(call)
    except ValueError as error:
        return [kind.__name__ for kind in type(error).__mro__]
    return []


scheduler = initialize_scheduler_environment(CONFIG)
refs, why = [], []
for idx in range(int(sys.argv[3])):
    actor_id, handle = submit_actor(Infer, resource_requirements={"CPU": 1}, name=f"infer-{idx}")
    refs.append(handle.infer.remote(idx, str(FOLDER / "go")))
    why.append(explain_task(actor_id))
note("all-submitted")
actors = list_actors()
results, home, failed = ray.get(refs), here(), failure(handle.fail.remote())
scheduler.stop()
answer({"home": home, "results": results, "why": why, "actors": actors, "failure": failed})
