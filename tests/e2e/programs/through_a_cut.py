"""Calls are under way while the connection breaks and mends."""

import sys

import ray
from common import CONFIG, FOLDER, answer, note, wait_for

from ray_multicluster_scheduler import initialize_scheduler_environment, submit_actor


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count

    def wait(self, path: str) -> str:
        wait_for(path)
        return "waited"


scheduler = initialize_scheduler_environment(CONFIG)
_, far = submit_actor(Counter, preferred_cluster="other")
ray.get(far.add.remote())
before = [far.add.remote() for _ in range(50)]
waiting = far.wait.remote(str(FOLDER / "mended"))
note("ready")
wait_for(str(FOLDER / "cut"))
during = [far.add.remote() for _ in range(50)]
wait_for(str(FOLDER / "mended"))
counts = ray.get([*before, *during, far.add.remote()], timeout=float(sys.argv[3]))
waited = ray.get(waiting, timeout=float(sys.argv[3]))
scheduler.stop()
answer({"counts": counts, "waited": waited})
