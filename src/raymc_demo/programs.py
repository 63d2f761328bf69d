"""The programs that the demo's jobs run; each cluster has them below its own home directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FUND = "project/pycharm/Fund"
TOOLS = "project/pycharm/tools"
FORECASTING = f"{FUND}/Index_Markup_Forecasting"
#: The path of the configuration, relative to a home directory.
CONFIG = "cluster.yaml"

#: The two jobs of the users' report, by their names there.
PREDICTIONS = {
    "indx_bunch_daily_predict": f"{FORECASTING}/bunch_and_reverse_model/predict_cluster.py",
    "indx_markup_daily_predict": f"{FORECASTING}/index_ts_forecasting_model/cat/predict_cluster.py",
}
SPREAD = f"{FUND}/spread.py"
SHARD = f"{FUND}/shard.py"
BROKEN = f"{FUND}/broken.py"
LONG = f"{FUND}/long.py"

_PREDICT = '''\
"""One actor per index, and one ray.get; `whose_tools` is found through PYTHONPATH."""
import os
import random

import ray
from whose_tools import OWNER

from ray_multicluster_scheduler.app.client_api.submit_actor import submit_actor
from ray_multicluster_scheduler.app.client_api.unified_scheduler import initialize_scheduler_environment

home_dir = os.environ["home_dir"]
index_list = ["000300", "000905"]


class Infer:
    def infer(self, idx, split_name="train"):
        return f"{idx} ({split_name}) on {os.environ['RAY_MULTICLUSTER_CLUSTER']}"


def infer_task():
    randstr = str(random.randint(1000, 9999))
    actor_id, actor_handle = submit_actor(
        actor_class=Infer,
        resource_requirements={"CPU": 1, "memory": 1 * 1024 * 1024 * 1024},
        tags=["tradebot", "fund"],
        name=f"ACTOR_{randstr}",
    )
    return actor_id, actor_handle


def main():
    config_file_path = home_dir + "cluster.yaml"
    task_lifecycle_manager = initialize_scheduler_environment(config_file_path=config_file_path)

    results_ref = []
    for idx in index_list:
        actor_id, actor_handle = infer_task()
        objRef = actor_handle.infer.remote(ARGUMENTS)
        results_ref.append(objRef)

    results = list(ray.get(results_ref))
    task_lifecycle_manager.stop()
    print(", ".join(results), f"home_dir={home_dir}", f"tools of {OWNER}", sep="; ")


if __name__ == "__main__":
    main()
'''

#: Where the report's two programs differ: the names of their actors, and the call.
_BUNCH = _PREDICT.replace("ACTOR", "bounch_predict_daily").replace("ARGUMENTS", 'idx, split_name="test"')
_MARKUP = _PREDICT.replace("ACTOR", "idx_predict_daily").replace("ARGUMENTS", "idx")

_SPREAD = '''\
"""Three actors, of which the cluster of this job holds two: the third goes to the other cluster."""
import os
import sys
import time
from pathlib import Path

import ray

from ray_multicluster_scheduler import initialize_scheduler_environment, submit_actor

cpus, all_at_work, go_on = float(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]


class Infer:
    def begin(self):
        return True

    def infer(self, idx):
        while not os.path.exists(go_on):
            time.sleep(0.1)
        return f"actor {idx} on {os.environ['RAY_MULTICLUSTER_CLUSTER']}"


scheduler = initialize_scheduler_environment(os.environ["home_dir"] + "cluster.yaml")
handles = [submit_actor(Infer, resource_requirements={"CPU": cpus})[1] for _ in range(3)]
ray.get([handle.begin.remote() for handle in handles])
all_at_work.touch()
print(", ".join(ray.get([handle.infer.remote(idx) for idx, handle in enumerate(handles)])))
scheduler.stop()
'''

_SHARD = """\
import os
import sys

print(f"shard {sys.argv[1]} on {os.environ['RAY_MULTICLUSTER_CLUSTER']}")
"""

_BROKEN = """\
raise SystemExit("the model of today is missing: /data/models/today.pt")
"""

_LONG = """\
import os
import sys
import time

seconds = int(sys.argv[1])
where, attempt = os.environ["RAY_MULTICLUSTER_CLUSTER"], os.environ["RAY_MULTICLUSTER_ATTEMPT"]
print(f"attempt {attempt} on {where}: {seconds} s of work", flush=True)
time.sleep(seconds)
print(f"attempt {attempt} on {where}: done", flush=True)
"""


def runtime_env(home: Path) -> dict[str, Mapping[str, str]]:
    """Return the environment of one cluster from the report, without its conda environment."""
    others = ("rlops", "mlops", "ray_multicluster_scheduler")
    folders = (FUND, TOOLS, *(f"project/pycharm/{name}" for name in others))
    search_path = "".join(f"{home}/{folder}:\n" for folder in folders)
    return {"env_vars": {"home_dir": f"{home}/", "PYTHONPATH": search_path + "${PYTHONPATH}\n"}}


def install(home: Path, owner: str) -> None:
    """Write the programs below a home directory. `owner` identifies the tools of this home."""
    programs = {
        PREDICTIONS["indx_bunch_daily_predict"]: _BUNCH,
        PREDICTIONS["indx_markup_daily_predict"]: _MARKUP,
        SPREAD: _SPREAD,
        SHARD: _SHARD,
        BROKEN: _BROKEN,
        LONG: _LONG,
        f"{TOOLS}/whose_tools.py": f"OWNER = {owner!r}\n",
    }
    for name, text in programs.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
