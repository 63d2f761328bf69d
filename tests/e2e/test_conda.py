"""Conda on real clusters: a description that Ray builds, and pip packages on top of a named environment.

`conda` is a stand-in that Ray itself asks (tests/support/conda_stand_in.py). Its environments hold Ray, and
neither this package nor what the jobs here ask for.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.conda_stand_in import StandInConda

import ray_multicluster_scheduler
from ray_multicluster_scheduler import get_job_info, submit_job, wait_for_all_jobs
from ray_multicluster_scheduler.errors import JobsFailed
from ray_multicluster_scheduler.local import HeadSpec, Sandbox

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAM = """
import sys
import humanize, ray, six
print("driver", humanize.__version__, six.__version__, sys.prefix)
ray.init()

@ray.remote
def look():
    import humanize, six
    return humanize.__version__, six.__version__, sys.prefix

print("worker", *ray.get(look.remote()))
"""
PACKAGES = ["humanize==4.9.0", "six==1.16.0"]


@dataclass(frozen=True, kw_only=True)
class World:
    """Two clusters on machines with conda; `ts` is an environment of both."""

    conda: StandInConda
    sandbox: Sandbox

    def config(self, folder: Path, **runtime_env: Any) -> Path:
        """Write a clusters.yaml that gives both clusters this environment."""
        document = yaml.safe_load(self.sandbox.config_path.read_text())
        for cluster in document["clusters"].values():
            cluster["runtime_env"] = runtime_env
        path = folder / "clusters.yaml"
        path.write_text(yaml.safe_dump(document))
        return path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    conda = StandInConda(tmp_path_factory.mktemp("conda"))
    conda.environment("ts")
    heads = [HeadSpec(name=name, cpus=4, env=conda.variables()) for name in ("centos", "mac")]
    with Sandbox(tmp_path_factory.mktemp("heads"), heads) as sandbox:
        yield World(conda=conda, sandbox=sandbox)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of the program. Whatever scheduler a test opens is stopped."""
    monkeypatch.setenv("RAY_MULTICLUSTER_HOME", str(tmp_path / "home"))
    program = tmp_path / "project"
    program.mkdir()
    (program / "program.py").write_text(PROGRAM)
    yield program
    ray_multicluster_scheduler.get_unified_scheduler().stop()


@pytest.mark.parametrize("cluster", ["centos", "mac"])
def test_pip_on_a_named_environment_is_seen_by_driver_and_workers_and_kept(
    cluster: str, world: World, folder: Path
) -> None:
    ray_multicluster_scheduler.initialize_scheduler_environment(world.config(folder.parent, conda="ts"))
    ids = [
        submit_job(
            "python program.py",
            runtime_env={"pip": PACKAGES, "working_dir": str(folder)},
            preferred_cluster=cluster,
        )
        for _ in range(2)
    ]
    wait_for_all_jobs(ids)
    prefix = world.conda.root / "envs/ts"
    for each in ids:
        log = get_job_info(each)["logs"]
        assert f"driver 4.9.0 1.16.0 {prefix}" in log
        assert f"worker 4.9.0 1.16.0 {prefix}" in log
    (site,) = prefix.glob("lib/python*/site-packages")
    assert [path.name for path in site.iterdir()] == ["held.pth"]


def test_a_description_is_built_with_the_packages_of_cluster_and_job(world: World, folder: Path) -> None:
    config = world.config(
        folder.parent, conda={"dependencies": ["pip", {"pip": ["six==1.15.0"]}]}, pip=["humanize==4.9.0"]
    )
    ray_multicluster_scheduler.initialize_scheduler_environment(config)
    job = submit_job("python program.py", runtime_env={"pip": ["six==1.16.0"], "working_dir": str(folder)})
    wait_for_all_jobs([job])
    log = get_job_info(job)["logs"]
    assert "driver 4.9.0 1.16.0 " in log
    assert "worker 4.9.0 1.16.0 " in log
    assert str(world.conda.root / "envs") not in log


@pytest.mark.parametrize(
    ("conda", "words"),
    [
        ("nobody-made-this", "The given conda environment 'nobody-made-this'"),
        ({"dependencies": ["python=3.9"]}, "ResolvePackageNotFound"),
        ({"dependencies": [{"pip": ["no-such-package-of-ours==1"]}]}, "no-such-package-of-ours"),
    ],
    ids=["name", "python", "package"],
)
def test_what_conda_refuses_is_tried_once_on_each_cluster_and_told_in_its_words(
    conda: object, words: str, world: World, folder: Path
) -> None:
    ray_multicluster_scheduler.initialize_scheduler_environment(world.sandbox.config_path)
    job = submit_job("python program.py", runtime_env={"conda": conda, "working_dir": str(folder)})
    with pytest.raises(JobsFailed, match=words):
        wait_for_all_jobs([job])
    tried = [attempt["cluster"] for attempt in get_job_info(job)["attempts"]]
    assert sorted(tried) == ["centos", "mac"]


TASKS = """
import sys
import ray
import ray_multicluster_scheduler as raymc

def look():
    import humanize, sys
    return humanize.__version__, sys.prefix

scheduler = raymc.initialize_scheduler_environment(sys.argv[1])
for name in ("centos", "mac"):
    print("saw", *ray.get(raymc.submit_task(look, preferred_cluster=name)[1]))
scheduler.stop()
"""
CONNECTED = """
import sys
import ray
from ray_multicluster_scheduler import init_ray

def look():
    import humanize, sys
    return humanize.__version__, sys.prefix

for address in sys.argv[1:]:
    init_ray(f"ray://{address}", '{"conda": "ts", "pip": ["humanize==4.9.0"]}')
    print("saw", *ray.get(ray.remote(look).remote()))
    ray.shutdown()
"""


@pytest.mark.parametrize("program", [TASKS, CONNECTED], ids=["submit_task", "init_ray"])
def test_pip_on_a_named_environment_is_seen_by_tasks_on_both_clusters(
    program: str, world: World, tmp_path: Path
) -> None:
    config = world.config(tmp_path, conda="ts", pip=["humanize==4.9.0"])
    addresses = [head.client_address for head in world.sandbox.heads.values()]
    done = subprocess.run(
        [sys.executable, "-c", program, *([config] if program == TASKS else addresses)],
        env={**os.environ, "RAY_MULTICLUSTER_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    seen = [line for line in done.stdout.splitlines() if line.startswith("saw ")]
    assert seen == [f"saw 4.9.0 {world.conda.root}/envs/ts"] * 2, done.stdout + done.stderr
