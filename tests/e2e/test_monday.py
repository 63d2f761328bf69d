"""The user's own clusters, programs and conda environments, as `examples/fund` holds them, on two real heads.

The commands of its README are run as they are written. `conda` is a stand-in that Ray itself asks; its
environments hold Ray and not this package. A checkout of the older package, which cannot be imported, lies
where the user's PYTHONPATH names it.
"""

import ast
import os
import re
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.conda_stand_in import StandInConda, write_old_checkout
from tests.support.pages import ROOT, blocks
from tests.support.processes import command_lines

import ray_multicluster_scheduler
from ray_multicluster_scheduler.local import Sandbox

FUND = ROOT / "examples/fund"
HOMES = {"centos": "home/zorro", "mac": "Users/zorro"}
CONDAS = {"centos": "ts", "mac": "k8s"}
#: The job of each cluster: the folder of its program, and the number of its actors.
JOBS = {"centos": ("bunch_and_reverse_model", 3), "mac": ("index_ts_forecasting_model/cat", 2)}
SEARCH_PATH = ("Fund", "tools", "rlops", "mlops", "ray_multicluster_scheduler")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of the README."""

    folder: Path
    conda: StandInConda
    printed: str
    #: Command lines of Ray Client's helper processes of both heads, seen at any moment.
    helpers: set[str]

    def home(self, cluster: str) -> Path:
        return self.folder / "fund" / HOMES[cluster]

    def seen(self, cluster: str) -> list[dict[str, Any]]:
        """What the program of a cluster's job, and then its actors, saw around them."""
        read = [
            ast.literal_eval(line) for line in self.printed.splitlines() if line.startswith(("{'", "[{'"))
        ]
        flat = [each for item in read for each in (item if isinstance(item, list) else [item])]
        return [each for each in flat if each["cluster"] == cluster]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("monday")
    conda = StandInConda(folder / "conda")
    for home in HOMES.values():
        write_old_checkout(folder / "fund" / home / "project/pycharm/ray_multicluster_scheduler")
    state = folder / "state"
    environ = {**os.environ, **conda.variables(), "HOME": str(folder), "RAY_MULTICLUSTER_HOME": str(state)}
    commands = "".join(block.text for block in blocks("bash", pages=[FUND / "README.md"]))
    over, helpers, heads = threading.Event(), set(), set()

    def watch() -> None:
        while not over.wait(0.2):
            helpers.update(line for line in command_lines() if "specific-server" in line)
            if (sandbox := Sandbox.find(state)) is not None:
                heads.update(head.gcs_address for head in sandbox.heads.values())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", commands],
            cwd=ROOT,
            env={**environ, "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1500,
            check=False,
        )
    finally:
        over.set()
        watcher.join()
        Sandbox.clean(state)
    print(done.stdout)
    assert done.returncode == 0
    assert len(heads) == 2
    ours = {line for line in helpers if any(head in line for head in heads)}
    return Run(folder=folder, conda=conda, printed=done.stdout, helpers=ours)


@pytest.mark.ray
@pytest.mark.parametrize("cluster", ["centos", "mac"])
def test_each_job_and_its_actors_see_the_environment_of_their_own_cluster(run: Run, cluster: str) -> None:
    seen = run.seen(cluster)
    program, actors = JOBS[cluster]
    assert re.search(rf"SUCCEEDED +{cluster} .*/{program}/predict_cluster.py +-$", run.printed, re.MULTILINE)
    assert len(seen) == 1 + actors
    for each in seen:
        assert each["sys.prefix"] == str(run.conda.root / "envs" / CONDAS[cluster])
        assert each["home_dir"] == f"{run.home(cluster)}/"
        own = ":".join(f"{run.home(cluster)}/project/pycharm/{folder}" for folder in SEARCH_PATH)
        assert each["PYTHONPATH"].rstrip(":").endswith(own)


@pytest.mark.ray
def test_jobs_and_actors_import_the_package_of_the_submitter_and_not_the_old_checkout(run: Run) -> None:
    for each in [*run.seen("centos"), *run.seen("mac")]:
        assert each["version"] == ray_multicluster_scheduler.__version__
        assert "/runtime_resources/" in each["package"]


@pytest.mark.ray
def test_no_helper_process_of_ray_client_appears(run: Run) -> None:
    assert not run.helpers


@pytest.mark.ray
def test_the_readme_prints_what_it_replaces_and_what_each_cluster_would_get(run: Run) -> None:
    for home in HOMES.values():
        assert re.search(rf"^/{home} +-> {run.folder}/fund/{home}$", run.printed, re.MULTILINE)
    assert ("randint(int(1e10), int(9e10))" in run.printed) == (sys.version_info >= (3, 12))
    for conda in CONDAS.values():
        assert re.search(rf"conda\W+{conda}\b", run.printed)


SEED = ROOT.parent / "shared/seeds/000_a071a931a2d45358.txt"
PARTS = {
    "main.py": ("## 主控程序核心代码\n", "\n## 任务一"),
    "bunch_and_reverse_model/predict_cluster.py": (
        "bunch_and_reverse_model/predict_cluster.py 核心代码\n",
        "\n## 任务二",
    ),
    "index_ts_forecasting_model/cat/predict_cluster.py": (
        "cat/predict_cluster.py 核心代码\n",
        "\n# 提交方式",
    ),
    "cluster.yaml": ("- centos 集群 runtime_env 配置\n", "- 实际 mac"),
    "cluster.yaml ": ("（差异主要是 conda 环境，和home_dir目录）\n", "\n#  参数传递规范"),
}


@pytest.mark.skipif(not SEED.exists(), reason="the user's document is not here")
@pytest.mark.parametrize("name", PARTS)
def test_every_line_of_the_document_stands_in_the_example(name: str) -> None:
    begins, ends = PARTS[name]
    wanted = SEED.read_text().partition(begins)[2].partition(ends)[0]
    text = (FUND / "Index_Markup_Forecasting" / name.strip()).read_text()
    assert wanted
    assert wanted in text or textwrap.indent(wanted, "      ") in text


def test_both_languages_of_the_readme_show_the_same_commands() -> None:
    english, chinese = (
        [block.text for block in blocks("bash", pages=[FUND / name])]
        for name in ("README.md", "README.zh-CN.md")
    )
    assert english == chinese
