"""A driver that will be killed while an actor of it works on another cluster."""

import os

import ray
from common import CONFIG, FOLDER, here, note, wait_for

from ray_multicluster_scheduler import initialize_scheduler_environment, submit_actor


class Far:
    def where(self) -> str:
        return here()

    def wait(self, path: str) -> None:
        wait_for(path)


initialize_scheduler_environment(CONFIG)
_, far = submit_actor(Far, preferred_cluster="other")
ray.get(far.where.remote())
note("lonely", str(os.getpid()))
ray.get(far.wait.remote(str(FOLDER / "never")))
