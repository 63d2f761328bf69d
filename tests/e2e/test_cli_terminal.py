"""The job commands on two real clusters, in a real terminal."""

import json
from collections import Counter
from pathlib import Path

import pytest
from tests.integration.raymc import environment, raymc
from tests.integration.terminal import CTRL_C, typing_into

from ray_multicluster_scheduler.local import Sandbox

pytestmark = pytest.mark.ray

MAIN = """
import os, time
from words import GREETING
print(GREETING, "from", os.environ["RAY_MULTICLUSTER_CLUSTER"], flush=True)
time.sleep(2)
print("and good-bye", flush=True)
"""


@pytest.fixture
def environ(sandbox: Sandbox, tmp_path: Path) -> dict[str, str]:
    return environment(
        RAY_MULTICLUSTER_HOME=str(tmp_path / "home"), RAY_MULTICLUSTER_CONFIG=str(sandbox.config_path)
    )


async def test_a_working_directory_travels_and_its_log_streams(
    environ: dict[str, str], tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "main.py").write_text(MAIN)
    (code / "words.py").write_text("GREETING = 'hello'\n")
    # Only one of the two has so many CPUs.
    command = ("submit", "--cpus", "3", "--working-dir", code, "--", "python", "main.py")
    async with typing_into(*command, environ=environ) as person:
        await person.until("hello from centos")
        await person.until("RUNNING on centos for")
        await person.until("and good-bye")
        assert await person.end() == 0
        assert "SUCCEEDED on centos" in person.seen


async def test_an_array_of_twelve_runs_on_both_clusters(environ: dict[str, str]) -> None:
    command = ("submit", "--array", "1-12", "--submission-id", "dozen", "--", "echo part {i}; sleep 1")
    async with typing_into(*command, environ=environ) as person:
        await person.until("/12")
        assert await person.end() == 0, person.seen
    done = await raymc("jobs", "--group", "dozen", "--json", environ=environ)
    rows = json.loads(done.out)
    assert {row["state"] for row in rows} == {"SUCCEEDED"}
    places = Counter(row["cluster"] for row in rows)
    assert sum(places.values()) == 12
    assert set(places) == {"centos", "mac"}


async def test_ctrl_c_stops_a_real_job(environ: dict[str, str]) -> None:
    command = ("submit", "--submission-id", "nap", "--", "echo asleep; exec sleep 600")
    async with typing_into(*command, environ=environ) as person:
        await person.until("asleep\r\n")
        person.type(CTRL_C)
        assert await person.end() == 130, person.seen
        assert "1 STOPPED" in person.seen
    status = await raymc("status", "nap", "--json", environ=environ)
    assert json.loads(status.out)["status"] == "STOPPED"
