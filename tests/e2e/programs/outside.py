"""A program that is no job: the first task chooses its home."""

import os

import ray
from common import CONFIG, FOLDER, answer, note, wait_for

from ray_multicluster_scheduler import explain_task, initialize_scheduler_environment, submit_task


def where() -> tuple[str, str]:
    return ray.get_runtime_context().gcs_address, os.environ["RAY_MULTICLUSTER_CLUSTER"]


scheduler = initialize_scheduler_environment(CONFIG)
task_id, ref = submit_task(where, resource_requirements={"CPU": 1, "memory": 0.1})
result, env = ray.get(ref)
note("at-work")
wait_for(str(FOLDER / "go-on"))
home = explain_task(task_id)["cluster"]
scheduler.stop()
answer({"home": home, "result": result, "env": env, "ray_after_stop": ray.is_initialized()})
