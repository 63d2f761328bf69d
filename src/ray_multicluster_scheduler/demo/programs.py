"""The programs that the demo's jobs run; each cluster has them below its own home directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FUND = "project/pycharm/Fund"
TOOLS = "project/pycharm/tools"
FORECASTING = f"{FUND}/Index_Markup_Forecasting"

#: The two jobs of the users' report, by the name that they gave them.
PREDICTIONS = {
    "indx_bunch_daily_predict": f"{FORECASTING}/bunch_and_reverse_model/predict_cluster.py",
    "indx_markup_daily_predict": f"{FORECASTING}/index_ts_forecasting_model/cat/predict_cluster.py",
}
SHARD = f"{FUND}/shard.py"
BROKEN = f"{FUND}/broken.py"
LONG = f"{FUND}/long.py"

_PREDICT = '''\
"""Two actors on the cluster that the job was sent to; `whose_tools` is found through PYTHONPATH."""
import os

import ray
from whose_tools import OWNER


@ray.remote(num_cpus=1)
class Infer:
    def infer(self, index):
        return f"{index} predicted"


ray.init(log_to_driver=False)
actors = [Infer.remote() for _ in range(2)]
print(", ".join(ray.get([actor.infer.remote(index) for index, actor in enumerate(actors)])), end="; ")
print(f"home_dir={os.environ['home_dir']}; tools of {OWNER}")
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
    """Return the environment of the report for one cluster, without its conda environment."""
    folders = (FUND, TOOLS, "project/pycharm/rlops", "project/pycharm/mlops")
    search_path = "".join(f"{home}/{folder}:\n" for folder in folders)
    return {"env_vars": {"home_dir": f"{home}/", "PYTHONPATH": search_path + "${PYTHONPATH}\n"}}


def install(home: Path, owner: str) -> None:
    """Write the programs below a home directory. `owner` tells one home's tools from another's."""
    programs = {
        **dict.fromkeys(PREDICTIONS.values(), _PREDICT),
        SHARD: _SHARD,
        BROKEN: _BROKEN,
        LONG: _LONG,
        f"{TOOLS}/whose_tools.py": f"OWNER = {owner!r}\n",
    }
    for name, text in programs.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
