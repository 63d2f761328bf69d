"""Task two: the manager is made in main()."""
import os
import random
from pathlib import Path

import ray

from Index_Markup_Forecasting.surroundings import look_around
from ray_multicluster_scheduler.app.client_api.submit_actor import submit_actor
from ray_multicluster_scheduler.app.client_api.unified_scheduler import initialize_scheduler_environment

env_path = Path(os.environ['home_dir']) / 'project/pycharm/Fund'
index_mapping = {'000300': 'CSI 300', '000905': 'CSI 500'}


class Infer:
    def infer(self, idx):
        return {'index': idx, **look_around()}


def infer_task():
    randstr = str(random.randint(1000, 9999))
    actor_id, actor_handle = submit_actor(
        actor_class=Infer,
        resource_requirements={"CPU": 1, "memory": 1 * 1024 * 1024 * 1024},
        tags=['tradebot', 'fund'],
        name=f'idx_predict_daily_{randstr}',
        # preferred_cluster=PREFERRED_CLUSTER,
        )
    return actor_id, actor_handle


def main():
    config_file_path = env_path / 'Index_Markup_Forecasting/cluster.yaml'
    task_lifecycle_manager = initialize_scheduler_environment(config_file_path=config_file_path)

    results_ref = []
    for idx in index_mapping.keys():
        actor_id, actor_handle = infer_task()
        objRef = actor_handle.infer.remote(idx)
        results_ref.append(objRef)

    print(list(ray.get(results_ref)))
    task_lifecycle_manager.stop()


if __name__ == '__main__':
    print(look_around())
    main()
