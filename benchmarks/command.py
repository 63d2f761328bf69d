"""Typing `raymc submit -- true` beside `ray job submit -- true`, and what a help text and a TAB cost.

The job is the same, so what differs is the way there and back: imports, the first look at the clusters, how
soon the end is noticed and the rest of the log is there.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.measure import Report, Size, in_turns, main, ratio, summary
from benchmarks.real import two_clusters
from ray_multicluster_scheduler.background import end_schedulers
from ray_multicluster_scheduler.runtime import Scheduler

ROUNDS = {Size.SMOKE: 1, Size.QUICK: 5, Size.FULL: 11}
RAYMC = [sys.executable, "-m", "ray_multicluster_scheduler.cli.main"]
RAY = [sys.executable, "-c", "from ray.scripts.scripts import main; main()"]
#: A job that runs for so long is looked at less often than one that has just begun.
LONGER_S = 10


def measure(size: Size) -> Report:
    """Run the same commands through both command lines, one after the other."""
    rounds = ROUNDS[size]
    with two_clusters() as (dashboards, config), tempfile.TemporaryDirectory() as home:
        environ = {**os.environ, "RAY_MULTICLUSTER_HOME": home}
        ours = _Ours(config, environ, dashboards)
        ours.submit("true")  # makes the store
        theirs = [*RAY, "job", "submit", "--address", dashboards["a"], "--", "true"]
        took = in_turns(
            {
                "ours": lambda: ours.submit("true"),
                "no wait": ours.submit_and_leave,
                "cold": ours.submit_cold,
                "jobs": lambda: ours.run("jobs"),
                "stock": lambda: _wall_s(theirs, os.environ),
            },
            rounds=rounds,
        )
        late, ours.late_s = ours.late_s[1:], []
        for _ in range(min(3, rounds)):
            ours.submit(f"sleep {LONGER_S}")
        tab = {"_RAYMC_COMPLETE": "complete_bash", "COMP_WORDS": "raymc status ", "COMP_CWORD": "2"}
        starts: Mapping[str, Callable[[], float]] = {
            "raymc --help": lambda: _processor_s([*RAYMC, "--help"], environ),
            "TAB after raymc status": lambda: _processor_s(
                RAYMC, {**environ, **tab, "RAY_MULTICLUSTER_CONFIG": str(config)}
            ),
        }
        costs = in_turns(starts, rounds=rounds)
        end_schedulers(Path(home))
    return Report(
        name="command",
        lines=(
            summary("raymc submit -- true", took["ours"], unit="s"),
            summary("ray job submit -- true", took["stock"], unit="s"),
            ratio("submit -- true: raymc / ray", took["ours"], took["stock"], at_most=0.28),
            ratio("submit --no-wait / ray job submit", took["no wait"], took["stock"], at_most=0.05),
            ratio("the same, which starts the scheduler", took["cold"], took["stock"], at_most=0.2),
            ratio("jobs / ray job submit", took["jobs"], took["stock"], at_most=0.04),
            summary("raymc returns after the end of true", late, unit="s", at_most=0.5),
            summary(f"raymc returns after the end of sleep {LONGER_S}", ours.late_s, unit="s", at_most=0.5),
            *(
                summary(f"{what}: processor time", values, unit="s", at_most=0.25)
                for what, values in costs.items()
            ),
        ),
        notes=("The end is the one that Ray tells of the job. Two heads; the stock side uses one of them.",),
    )


class _Ours:
    """Submits with `raymc` and notes how long after the job's end it returned."""

    def __init__(self, config: Path, environ: Mapping[str, str], dashboards: Mapping[str, str]) -> None:
        self._config = config
        self._dashboards = dashboards
        self._environ = environ
        self.late_s: list[float] = []
        self._jobs = 0

    def submit(self, command: str) -> float:
        """Return how long the command took."""
        self._jobs += 1
        name = f"command-{self._jobs}"
        words = ["submit", "--config", str(self._config), "--submission-id", name, "--", *command.split()]
        took_s = _wall_s([*RAYMC, *words], self._environ)
        returned_at = time.time()
        self.late_s.append(returned_at - self._ended_at(name))
        return took_s

    def submit_and_leave(self) -> float:
        """Return how long `--no-wait` took with a scheduler that runs."""
        return self.run("submit", "--no-wait", "--", "true")

    def submit_cold(self) -> float:
        """Return how long `--no-wait` took without one, which starts it."""
        self.run("scheduler", "stop")
        return self.submit_and_leave()

    def run(self, command: str, *words: str) -> float:
        """Return how long a command took."""
        environ = {**self._environ, "RAY_MULTICLUSTER_CONFIG": str(self._config)}
        return _wall_s([*RAYMC, command, *words], environ)

    def _ended_at(self, name: str) -> float:
        """Return when the job ended, as Ray tells it: our store has the time at which that was noticed."""
        scheduler = Scheduler.open(self._config, environ=self._environ)
        try:
            job = scheduler.store.jobs.get(name)
        finally:
            scheduler.stop()
        url = f"{self._dashboards[job.cluster or '']}/api/jobs/{job.remote_id}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            told: dict[str, float] = json.load(answer)
        return told["end_time"] / 1000


def _wall_s(command: list[str], environ: Mapping[str, str]) -> float:
    began_at = time.monotonic()
    subprocess.run(command, env=environ, check=True, capture_output=True)
    return time.monotonic() - began_at


def _processor_s(command: list[str], environ: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environ, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main(measure)
