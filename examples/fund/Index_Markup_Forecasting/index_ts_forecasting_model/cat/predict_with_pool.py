"""Task two with a pool."""

import os
from pathlib import Path

from Index_Markup_Forecasting.surroundings import look_around
from ray_multicluster_scheduler import initialize_scheduler_environment, submit_actor_pool

env_path = Path(os.environ["home_dir"]) / "project/pycharm/Fund"
index_mapping = {"000300": "CSI 300", "000905": "CSI 500"}


class Infer:
    def infer(self, idx: str) -> dict[str, str]:
        return {"index": idx, **look_around()}


def main() -> None:
    scheduler = initialize_scheduler_environment(env_path / "Index_Markup_Forecasting/cluster.yaml")
    with submit_actor_pool(
        Infer,
        resource_requirements={"CPU": 1, "memory": 1 * 1024**3},
        tags=["tradebot", "fund"],
        name="idx_predict_daily",
    ) as pool:
        print(list(pool.map(Infer.infer, index_mapping)))
    scheduler.stop()


if __name__ == "__main__":
    print(look_around())
    main()
