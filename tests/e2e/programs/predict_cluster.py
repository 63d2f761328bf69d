"""The user's job script: one actor per index, results by one ray.get over all of them."""

import random
import sys

import ray
from common import CONFIG, answer, here

from ray_multicluster_scheduler.app.client_api.submit_actor import submit_actor
from ray_multicluster_scheduler.app.client_api.unified_scheduler import initialize_scheduler_environment


class Infer:
    def infer(self, idx: str, split_name: str = "train") -> tuple[str, str, str]:
        return idx, split_name, here()


def infer_task():
    randstr = str(random.randint(10**10, 9 * 10**10))
    actor_id, actor_handle = submit_actor(
        actor_class=Infer,
        resource_requirements={"CPU": 1, "memory": 1 * 1024 * 1024 * 1024},
        tags=["tradebot", "fund"],
        name=f"bounch_predict_daily_{randstr}",
    )
    return actor_id, actor_handle


def main() -> None:
    task_lifecycle_manager = initialize_scheduler_environment(config_file_path=CONFIG)

    results_ref = []
    for idx in sys.argv[3:]:
        _actor_id, actor_handle = infer_task()
        results_ref.append(actor_handle.infer.remote(idx, split_name="test"))

    results, home = list(ray.get(results_ref)), here()
    task_lifecycle_manager.stop()
    answer({"home": home, "results": results})


if __name__ == "__main__":
    main()
