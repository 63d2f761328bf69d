"""`make demo-ui` serves a dashboard over real clusters with jobs on them, and leaves nothing behind."""

import json
import re
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.test_demo import Demo, assert_nothing_is_left
from tests.support.waiting import until

from ray_multicluster_scheduler.local import head

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


def answer(address: str, path: str) -> str:
    with urllib.request.urlopen(address + path, timeout=60) as response:
        assert response.status == 200
        return str(response.read().decode())


def jobs(address: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(answer(address, "/api/v1/jobs"))["jobs"]
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_the_demo_of_the_dashboard_runs_jobs_until_it_is_ended(tmp_path: Path, number: int) -> None:
    demo = Demo(tmp_path / "t", "raymc_demo.ui")
    demo.read_until("Ctrl-C")
    found = re.search(r"http://127\.0\.0\.1:\d+", demo.printed)
    assert found is not None, demo.printed
    address, clusters = found[0], demo.clusters()
    assert "<html" in answer(address, "/")
    until(lambda: any(job["state"] in {"RUNNING", "SUCCEEDED"} for job in jobs(address)))
    assert {"ann", "bob", "carol"} <= {job["user"] for job in jobs(address)}
    assert head.find(str(clusters)) != []
    demo.process.send_signal(number)
    demo.process.send_signal(number)  # an impatient user
    assert demo.end() == 128 + number, demo.printed
    assert "Traceback" not in demo.printed
    assert_nothing_is_left(demo, clusters)
    with pytest.raises(OSError, match="refused"):
        answer(address, "/")
