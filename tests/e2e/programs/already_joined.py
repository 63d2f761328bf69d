"""A program that has called ray.init: its cluster stays its home."""

import sys

import ray
from common import CONFIG, answer

from ray_multicluster_scheduler import explain_task, initialize_scheduler_environment, submit_task


def here() -> str:
    return ray.get_runtime_context().gcs_address


ray.init(f"ray://{sys.argv[3]}")
scheduler = initialize_scheduler_environment(CONFIG)
near_id, near = submit_task(here, resource_requirements={"CPU": 1})
_, far = submit_task(here, preferred_cluster="home", resource_requirements={"CPU": 1})
results = ray.get([near, far])
near_is = explain_task(near_id)["cluster"]
scheduler.stop()
answer({"near": results[0], "far": results[1], "near_is": near_is, "still_joined": ray.is_initialized()})
