"""`make demo` does what it says within its time, and leaves nothing behind, also when it is interrupted."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ray_multicluster_scheduler.local import head
from ray_multicluster_scheduler.local.sandbox import StateDir
from raymc_demo.show import CONDAS, STEPS

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]


class Demo:
    """A demo in a process of its own, whose temporary files are below a directory of the test."""

    def __init__(self, folder: Path, module: str = "raymc_demo") -> None:
        self.folder = folder
        folder.mkdir()
        environ = {**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1", "COLUMNS": "110"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.printed = ""

    def read_until(self, words: str) -> None:
        """Read until the demo has printed these words."""
        assert self.process.stdout is not None
        while words not in self.printed:
            line = self.process.stdout.readline()
            assert line, f"it ended before it printed {words!r}:\n{self.printed}"
            self.printed += line

    def end(self) -> int:
        """Read the rest and return the exit code."""
        rest, _ = self.process.communicate()
        self.printed += rest
        return self.process.returncode

    def clusters(self) -> Path:
        """Return the directory of its clusters, with which all of their processes are marked."""
        (files,) = self.folder.iterdir()
        return StateDir(files / "raymc").scratch


def assert_nothing_is_left(demo: Demo, clusters: Path) -> None:
    assert list(demo.folder.iterdir()) == []
    assert head.find(str(clusters)) == []
    assert not clusters.exists()


def test_the_demo_shows_every_step_and_cleans_up(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "t")
    demo.read_until("mac: ready")
    clusters = demo.clusters()
    assert head.find(str(clusters)) != []
    assert demo.end() == 0, demo.printed
    for number, (title, _) in enumerate(STEPS, start=1):
        assert f"{number}. {title}" in demo.printed
    for cluster, conda in CONDAS.items():
        assert re.search(rf"On {cluster} it would be\b[^:]+conda: {conda}\b", demo.printed)
    predictions = re.findall(r"indx_\w+ +SUCCEEDED +(centos +…/home|mac +…/Users)/zorro/", demo.printed)
    assert len(set(predictions)) == 2
    assert re.search(r"000300 \(test\) on (\w+), 000905 \(test\) on \1; home_dir=", demo.printed)
    assert re.search(r"000300 \(train\) on (\w+), 000905 \(train\) on \1; home_dir=", demo.printed)
    assert re.search(r"one ray.get: actor 0 on (\w+), actor 1 on \1, actor 2 on (?!\1)", demo.printed)
    assert len(re.findall(r"specific-server", demo.printed)) == 1
    assert "needs 16 CPU; free: " in demo.printed
    assert re.search(
        r"survivor +SUCCEEDED +(mac, then centos +…/home|centos, then mac +…/Users)", demo.printed
    )
    assert re.search(r"broken +FAILED", demo.printed)
    assert "$ ray job submit --address http://127.0.0.1:" in demo.printed
    assert re.search(r"shard 99 on centos|shard 99 on mac", demo.printed)
    assert "Job 'stock' succeeded" in demo.printed
    assert re.search(r"stock +SUCCEEDED", demo.printed)
    assert re.search(r"endless +STOPPED", demo.printed)
    assert_nothing_is_left(demo, clusters)


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("mac: starting", signal.SIGINT),
        ("$ raymc clusters", signal.SIGTERM),
        ("The two jobs of the report", signal.SIGINT),
    ],
)
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path, moment: str, number: int) -> None:
    demo = Demo(tmp_path / "t")
    demo.read_until(moment)
    clusters = demo.clusters()
    demo.process.send_signal(number)
    demo.process.send_signal(number)  # an impatient user
    assert demo.end() == 128 + number, demo.printed
    assert "Traceback" not in demo.printed
    assert_nothing_is_left(demo, clusters)
