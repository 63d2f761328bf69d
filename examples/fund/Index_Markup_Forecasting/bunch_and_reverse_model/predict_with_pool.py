"""Task one with a pool: as many actors as have room on all clusters, and not one for each index."""

import os
from pathlib import Path

from Index_Markup_Forecasting.surroundings import look_around
from ray_multicluster_scheduler import initialize_scheduler_environment, submit_actor_pool

env_path = Path(os.environ["home_dir"]) / "project/pycharm/Fund"
index_list = ["000300", "000905", "000852"]
scheduler = initialize_scheduler_environment(env_path / "Index_Markup_Forecasting/cluster.yaml")


class Infer:
    def infer(self, idx: str, split_name: str) -> dict[str, str]:
        return {"index": idx, "split": split_name, **look_around()}


with submit_actor_pool(
    Infer,
    resource_requirements={"CPU": 1, "memory": 1 * 1024**3},
    tags=["tradebot", "fund"],
    name="bounch_predict_daily",
) as pool:
    results = list(pool.map("infer", index_list, kwargs={"split_name": "test"}))

print(look_around(), *results, sep="\n")
scheduler.stop()
