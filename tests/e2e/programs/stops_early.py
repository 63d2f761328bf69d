"""Stops while calls and the work of listening for their answers are under way."""

import ray
from common import CONFIG, FOLDER, answer, here, wait_for

from ray_multicluster_scheduler import initialize_scheduler_environment, submit_actor


class Far:
    def where(self) -> str:
        return here()

    def wait(self, path: str) -> None:
        wait_for(path)


scheduler = initialize_scheduler_environment(CONFIG)
_, far = submit_actor(Far, preferred_cluster="other")
other = ray.get(far.where.remote())
waiting = [far.wait.remote(str(FOLDER / "never")) for _ in range(3)]
assert ray.wait(waiting, timeout=1)[0] == []
scheduler.stop()
answer({"other": other})
