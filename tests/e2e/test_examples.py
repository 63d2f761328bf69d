"""The programs of examples/, as they are, on real clusters, one after the other."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.pages import ROOT

from ray_multicluster_scheduler.local import Sandbox

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

EXAMPLES = ROOT / "examples"
#: More would be a program, and no example.
MOST_LINES = 60


def environment_of(sandbox: Sandbox, folder: Path) -> dict[str, str]:
    """What a user of these clusters has in the environment, with files in `folder`."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LANG": "C.UTF-8",
        "RAY_MULTICLUSTER_HOME": str(sandbox.config_path.parents[1]),
    }


def run(name: str, sandbox: Sandbox, folder: Path) -> str:
    """Run an example and return what it has printed."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / name],
        env=environment_of(sandbox, folder),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(scope="module")
def printed_by(sandbox: Sandbox, folder: Path) -> dict[str, str]:
    """What the quick examples print, which run at the same time."""
    names = ("hello.py", "sweep.py", "nightly_chain.py", "old_beside_new.py")
    with ThreadPoolExecutor() as pool:
        return dict(zip(names, pool.map(lambda name: run(name, sandbox, folder), names), strict=True))


@pytest.mark.parametrize("program", sorted(EXAMPLES.glob("*.py")), ids=lambda path: str(path.name))
def test_an_example_is_short(program: Path) -> None:
    assert len(program.read_text().splitlines()) < MOST_LINES


def test_hello(printed_by: dict[str, str]) -> None:
    printed = printed_by["hello.py"]
    assert re.search(r"^hello from (centos|mac)$", printed, re.MULTILINE)
    assert re.search(r"^sub_\w+ SUCCEEDED on (centos|mac) after ", printed, re.MULTILINE)
    assert "\nPlaced on " in printed


def test_sweep(printed_by: dict[str, str]) -> None:
    printed = printed_by["sweep.py"]
    assert printed.count(" SUCCEEDED on ") == 6
    assert printed.endswith("the best rate is 0.4, with a loss of 3.15e-14\n")


def test_nightly_chain_runs_once_each_night(
    printed_by: dict[str, str], sandbox: Sandbox, folder: Path
) -> None:
    first, second = printed_by["nightly_chain.py"], run("nightly_chain.py", sandbox, folder)
    ended = [re.findall(r"^(sub_\w+) SUCCEEDED on ", printed, re.MULTILINE) for printed in (first, second)]
    assert len(set(ended[0])) == 3
    assert ended[0] == ended[1]
    assert "the sum is 338350\n" in first


def test_old_beside_new(printed_by: dict[str, str]) -> None:
    told = re.findall(
        r"^(centos|mac): SUCCEEDED, Python [\d.]+ and Ray [\d.]+$",
        printed_by["old_beside_new.py"],
        re.MULTILINE,
    )
    assert sorted(told) == ["centos", "mac"]


@pytest.mark.slow
def test_stock_ray(sandbox: Sandbox, tmp_path: Path) -> None:
    printed = run("stock_ray.py", sandbox, tmp_path)
    assert printed.startswith("SUCCEEDED\n")
    assert re.search(r"^hello from (centos|mac)$", printed, re.MULTILINE)


@pytest.mark.slow
def test_pipeline(sandbox: Sandbox, tmp_path: Path) -> None:
    printed = run("pipeline.py", sandbox, tmp_path)
    assert printed.endswith("age: 200 values, mean 0.000\nincome: 200 values, mean 0.000\n")


@pytest.mark.slow
def test_map(sandbox: Sandbox, tmp_path: Path) -> None:
    printed = run("map.py", sandbox, tmp_path)
    assert printed == "pi is about 3.141\n"  # the throws are the same each time


@pytest.mark.slow
def test_joblib_grid(sandbox: Sandbox, tmp_path: Path) -> None:
    printed = run("joblib_grid.py", sandbox, tmp_path)
    assert printed.startswith("best: {'C': 10, 'gamma': 0.001}, right in 97.")


@pytest.mark.slow
def test_actor_pool(sandbox: Sandbox, tmp_path: Path) -> None:
    printed = run("actor_pool.py", sandbox, tmp_path)
    assert re.match(r"\d actors on (centos|mac)", printed)
    assert printed.endswith("weather: 200 texts\ntrains: 400 texts\n")
