"""More actors than home has CPUs, all at work at the same time."""

import sys

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


scheduler = initialize_scheduler_environment(CONFIG)
refs, why = [], []
for idx in range(int(sys.argv[3])):
    actor_id, handle = submit_actor(Infer, resource_requirements={"CPU": 1}, name=f"infer-{idx}")
    refs.append(handle.infer.remote(idx, str(FOLDER / "go")))
    why.append(explain_task(actor_id))
note("all-submitted")
actors = list_actors()
results, home = ray.get(refs), here()
scheduler.stop()
answer({"home": home, "results": results, "why": why, "actors": actors})
