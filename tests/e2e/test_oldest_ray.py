"""The oldest Ray that is promised: jobs beside the newest, tasks and actors between two clusters of it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.pythons import ROOT, find

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1800)]

OLDEST = "2.9.3"
PROGRAM = "import os, ray; print(os.environ['RAY_MULTICLUSTER_CLUSTER'], 'runs', ray.__version__)"

#: More actors than one head has CPUs.
ACTORS = """
import ray
from ray_multicluster_scheduler import initialize_scheduler_environment, submit_actor, submit_task

class Here:
    def tell(self):
        return ray.__version__, ray.get_runtime_context().gcs_address

scheduler = initialize_scheduler_environment()
print("a task:", ray.get(submit_task(lambda: ray.__version__)[1]))
handles = [submit_actor(Here, resource_requirements={"CPU": 1})[1] for _ in range(3)]
told = ray.get([handle.tell.remote() for handle in handles])
print("versions:", *{version for version, _ in told})
print("clusters:", len({address for _, address in told}))
scheduler.stop()
"""

Raymc = Callable[..., str]


@pytest.fixture(scope="module")
def old_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the oldest Ray."""
    base = find("3.11") or find("3.10")
    if base is None:
        pytest.skip(f"NOT TESTED: Ray {OLDEST} has wheels for Python 3.11 at most, and none such is here")
    place = tmp_path_factory.mktemp("oldest") / "venv"
    subprocess.run([base, "-m", "venv", place], check=True)
    python = place / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--only-binary=ray", f"ray[default]=={OLDEST}"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if "No matching distribution found for ray" in done.stderr:
        pytest.skip(f"NOT TESTED: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return python


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables that give `raymc` files of its own."""
    return {**os.environ, "RAY_MULTICLUSTER_HOME": str(tmp_path_factory.mktemp("home")), "COLUMNS": "200"}


def run(environ: dict[str, str], *command: str | Path) -> str:
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def raymc(old_python: Path, environ: dict[str, str]) -> Iterator[Raymc]:
    """The command line, with two heads of the oldest Ray and one of the newest, which end with the tests."""

    def call(*words: str) -> str:
        return run(environ, sys.executable, "-m", "ray_multicluster_scheduler.cli.main", *words)

    old = [word for name in ("old", "older") for word in ("--python", f"{name}={old_python}")]
    call("local", "up", "--names", "old,older,new", "--cpus", "2,2,1", *old)
    yield call
    call("local", "down")


def test_a_job_runs_on_the_oldest_ray_and_one_on_the_newest(raymc: Raymc) -> None:
    import ray

    for cluster, version in (("old", OLDEST), ("new", ray.__version__)):
        assert f"{cluster} runs {version}" in raymc(
            "submit", "--cluster", cluster, "--", "python", "-c", PROGRAM
        )


def test_a_job_on_the_oldest_ray_leaves_a_result(raymc: Raymc, tmp_path: Path) -> None:
    content = bytes(range(256)) * 1000  # Ray 2.9 marks each block of a file
    (tmp_path / "content").write_bytes(content)
    command = f"cp {tmp_path}/content $RAY_MULTICLUSTER_RESULT"
    raymc("submit", "--cluster", "old", "--submission-id", "leaves", "--", command)
    raymc("result", "leaves", "-o", str(tmp_path / "result"))
    assert (tmp_path / "result").read_bytes() == content


def test_the_example_runs_on_clusters_of_both(raymc: Raymc, environ: dict[str, str]) -> None:
    import ray

    assert raymc("clusters")  # the fixture has started them
    told = run(environ, sys.executable, ROOT / "examples" / "old_beside_new.py").splitlines()
    versions = {line.partition(":")[0]: line.rpartition(" ")[2] for line in told}
    assert versions == {"old": OLDEST, "older": OLDEST, "new": ray.__version__}


def test_tasks_and_actors_run_between_two_clusters_of_the_oldest_ray(
    raymc: Raymc, old_python: Path, environ: dict[str, str]
) -> None:
    run(environ, old_python, "-m", "pip", "install", "--quiet", f"{ROOT}[tasks]")
    told = run(environ, old_python, "-c", ACTORS)
    assert told.splitlines()[-3:] == [f"a task: {OLDEST}", f"versions: {OLDEST}", "clusters: 2"]
