"""No job: connects to a cluster the moment it is told to, and says where it really is."""

import sys

import ray
from common import CONFIG, FOLDER, answer, note, wait_for

from ray_multicluster_scheduler import initialize_scheduler_environment, submit_task
from ray_multicluster_scheduler.client.init_ray import init_ray

WANTED, NUMBER, ADDRESS = sys.argv[3:6]


def where() -> str:
    return str(ray.get_runtime_context().gcs_address)


scheduler = initialize_scheduler_environment(CONFIG)
note(f"ready-{NUMBER}")
wait_for(str(FOLDER / "go"))
if ADDRESS:
    init_ray(ADDRESS)
    answer(ray.get(ray.remote(where).remote()))
    ray.shutdown()
else:
    small = {"resource_requirements": {"CPU": 0.01}, "preferred_cluster": WANTED}
    answer(ray.get(submit_task(where, **small)[1]))
scheduler.stop()
