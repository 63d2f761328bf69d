"""Jobs of programs that have ended, with nobody's terminal open; judged by Ray's own REST."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from tests.support.waiting import PATIENCE_S, until

from ray_multicluster_scheduler.background import ControlFiles
from ray_multicluster_scheduler.config.find import state_dir
from ray_multicluster_scheduler.local import Sandbox

pytestmark = pytest.mark.ray

#: Runs `submit_job` for each list of arguments, and ends.
PROGRAM = """
import json, sys
from ray_multicluster_scheduler import submit_job
for arguments in json.loads(sys.argv[1]):
    submit_job(**arguments)
"""
#: Fails the first time that it is run.
FAILS_ONCE = "test -e {flag} || {{ touch {flag}; exit 3; }}"


class Alone:
    """Programs that submit and end, on real clusters with a store of their own."""

    def __init__(self, folder: Path, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.folder = folder
        config = folder / "clusters.yaml"
        document: dict[str, Any] = yaml.safe_load(sandbox.config_path.read_text())
        document["scheduler"] = {
            "linger_s": 5,
            "probe_interval_s": 1,
            "retry_delay_s": 1,
            "unreachable_after_s": 4,
            "lost_after_refused_s": 8,
        }
        config.write_text(yaml.safe_dump(document))
        home = {"RAY_MULTICLUSTER_HOME": str(folder / "home"), "RAY_MULTICLUSTER_CONFIG": str(config)}
        self.environ = {**os.environ, **home}
        self.files = ControlFiles(state_dir(config, home))

    def submit(self, *jobs: dict[str, Any]) -> None:
        command = [sys.executable, "-c", PROGRAM, json.dumps(jobs)]
        subprocess.run(command, env=self.environ, check=True, timeout=PATIENCE_S)

    def on_ray(self) -> dict[str, str]:
        """Return the status of every attempt that the clusters know, by its id there."""
        found = {}
        for head in self.sandbox.heads.values():
            with urlopen(f"{head.dashboard}/api/jobs/") as answer:
                rows = json.load(answer)
            found |= {row["submission_id"]: row["status"] for row in rows if row["submission_id"]}
        return found

    def until(self, holds: Callable[[dict[str, str]], bool]) -> dict[str, str]:
        seen: dict[str, str] = {}

        def is_seen() -> bool:
            seen.clear()
            seen.update(self.on_ray())
            return holds(seen)

        until(is_seen, told=lambda: f"{seen}\n{self.files.log.read_text()}")
        return seen

    def until_gone(self) -> None:
        assert self.files.wait_until_gone(PATIENCE_S), "the scheduler has not ended by itself"


@pytest.fixture
def alone(tmp_path: Path, sandbox: Sandbox) -> Alone:
    return Alone(tmp_path, sandbox)


def test_jobs_run_retry_stop_in_time_and_follow_each_other(alone: Alone) -> None:
    flag = alone.folder / "failed-once"
    alone.submit(
        {"entrypoint": "echo alone", "submission_id": "nw-one"},
        {"entrypoint": FAILS_ONCE.format(flag=flag), "submission_id": "nw-tried", "max_retries": 1},
        {"entrypoint": "sleep 600", "submission_id": "nw-late", "timeout_s": 3},
        {"entrypoint": "sleep 1", "submission_id": "nw-first"},
        {"entrypoint": "echo", "submission_id": "nw-second", "depends_on": ["nw-first"]},
    )
    wanted = {
        "nw-one": "SUCCEEDED",
        "nw-tried": "FAILED",
        "nw-tried--r2": "SUCCEEDED",
        "nw-late": "STOPPED",
        "nw-first": "SUCCEEDED",
        "nw-second": "SUCCEEDED",
    }
    alone.until(lambda seen: {each: seen.get(each) for each in wanted} == wanted)
    alone.until_gone()


def test_a_job_whose_cluster_dies_is_started_elsewhere(alone: Alone) -> None:
    alone.submit({"entrypoint": "sleep 8", "submission_id": "nw-moved", "preferred_cluster": "mac"})
    alone.until(lambda seen: seen.get("nw-moved") == "RUNNING")
    alone.sandbox.kill("mac")
    try:
        centos = alone.sandbox.heads["centos"].dashboard

        def has_moved() -> bool:
            with urlopen(f"{centos}/api/jobs/") as answer:
                seen = {row["submission_id"]: row["status"] for row in json.load(answer)}
            return seen.get("nw-moved--r2") == "SUCCEEDED"

        until(has_moved, told=alone.files.log.read_text)
    finally:
        alone.sandbox.start("mac")


def test_killed_at_random_every_job_ends_and_none_runs_twice(alone: Alone) -> None:
    journal, chance = alone.folder / "journal", random.Random(29)
    ids = [f"nw-kill-{number}" for number in range(20)]
    for number, each in enumerate(ids):
        alone.submit({"entrypoint": f"echo {each} >> {journal}", "submission_id": each})
        if number % 4 == 3:
            time.sleep(chance.uniform(0.0, 2.0))
            if (record := alone.files.record()) is not None:
                os.kill(record.pid, signal.SIGKILL)
    subprocess.run(
        [sys.executable, "-m", "ray_multicluster_scheduler.cli.main", "jobs"],
        env=alone.environ,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    alone.until(lambda seen: all(seen.get(each) == "SUCCEEDED" for each in ids))
    assert sorted(journal.read_text().split()) == sorted(ids)
    alone.until_gone()
