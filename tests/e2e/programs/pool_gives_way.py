"""A pool has taken all CPUs of all clusters, and a job wants two of them."""

import time

from common import CONFIG, answer

from ray_multicluster_scheduler import initialize_scheduler_environment, submit_actor_pool, submit_job

PATIENCE_S = 150
ALL_CPUS = 6


class Model:
    def predict(self, item: int) -> int:
        return 2 * item


scheduler = initialize_scheduler_environment(CONFIG)
with submit_actor_pool(Model, resource_requirements={"CPU": 1}) as pool:
    while pool.size < ALL_CPUS:
        time.sleep(0.1)
    before = pool.clusters()
    job = submit_job("echo hello", resource_requirements={"CPU": 2})
    job.wait(timeout=PATIENCE_S)
    during = pool.clusters()
    values = list(pool.map("predict", range(100)))
    ends_at = time.monotonic() + PATIENCE_S
    while pool.size < ALL_CPUS and time.monotonic() < ends_at:
        time.sleep(0.1)
    after = pool.clusters()
    result = {"before": before, "during": during, "after": after, "job": job.cluster}
    result["right"] = values == [2 * each for each in range(100)]
scheduler.stop()
answer(result)
