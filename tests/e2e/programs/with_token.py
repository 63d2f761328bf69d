"""No job: home is a cluster with a token, and an actor is on another cluster with another token."""

import ray
from common import CONFIG, FOLDER, answer, note, wait_for

from ray_multicluster_scheduler import initialize_scheduler_environment, submit_actor, submit_task


def where() -> str:
    return str(ray.get_runtime_context().gcs_address)


class Far:
    def where(self) -> str:
        return where()


scheduler = initialize_scheduler_environment(CONFIG)
home = ray.get(submit_task(where, preferred_cluster="home")[1])
_, far = submit_actor(Far, preferred_cluster="other")
other = ray.get(far.where.remote())
note("at-work")
wait_for(str(FOLDER / "go-on"))
scheduler.stop()
answer([home, other])
