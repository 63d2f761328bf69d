"""Task one: a module-level manager, and one actor per index."""
import os
import random
import time
from pathlib import Path

import ray

from Index_Markup_Forecasting.surroundings import look_around
from ray_multicluster_scheduler.app.client_api.submit_actor import submit_actor
from ray_multicluster_scheduler.app.client_api.unified_scheduler import initialize_scheduler_environment

env_path = Path(os.environ['home_dir']) / 'project/pycharm/Fund'
index_list = ['000300', '000905', '000852']
config_file_path = env_path / 'Index_Markup_Forecasting/cluster.yaml'
task_lifecycle_manager = initialize_scheduler_environment(config_file_path=config_file_path)


class Infer:
    def infer(self, idx, split_name):
        return {'index': idx, 'split': split_name, **look_around()}


def infer_task():
    randstr = str(random.randint(1e10, 9e10))
    actor_id, actor_handle = submit_actor(
        actor_class=Infer,
        resource_requirements={"CPU": 1, "memory": 1 * 1024 * 1024 * 1024},
        tags=['tradebot', 'fund'],
        name=f'bounch_predict_daily_{randstr}',
        # preferred_cluster=PREFERRED_CLUSTER,
        # preferred_cluster='mac',
        )
    return actor_id, actor_handle

results_ref = []
for idx in index_list:
    actor_id, actor_handle = infer_task()
    objRef = actor_handle.infer.remote(idx, split_name='test')
    results_ref.append(objRef)
    time.sleep(0.2)

resutls = list(ray.get(results_ref))
task_lifecycle_manager.stop()

print(look_around(), *resutls, sep='\n')
