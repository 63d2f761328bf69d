"""The job commands on two real clusters, in a real terminal."""

import json
from collections import Counter
from pathlib import Path

import pytest
from tests.support.raymc import environment, raymc
from tests.support.terminal import CTRL_C, typing_into

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


async def places_of(group: str, environ: dict[str, str]) -> Counter[tuple[str, str | None]]:
    done = await raymc("jobs", "--group", group, "--limit", "0", "--json", environ=environ)
    return Counter((row["state"], row["cluster"]) for row in json.loads(done.out))


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_of_sixty_shards_the_cluster_with_twice_the_cpus_does_about_twice_as_many(
    environ: dict[str, str],
) -> None:
    # Long enough that the CPUs are what limits a cluster, not the time that Ray takes to start a job.
    command = ("submit", "--array", "1-60", "--submission-id", "sixty", "--", ": {i}; sleep 12")
    async with typing_into(*command, environ=environ) as person:
        assert await person.end() == 0, person.seen
    places = await places_of("sixty", environ)
    assert places.total() == 60
    large, small = places["SUCCEEDED", "centos"], places["SUCCEEDED", "mac"]
    assert large + small == 60
    assert 1.6 <= large / small <= 2.5


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_ctrl_c_stops_the_rest_of_a_real_array(environ: dict[str, str]) -> None:
    # The first four end soon; each of the others would run for minutes.
    shard = "if [ {i} -le 4 ]; then exec true; else exec sleep 600; fi"
    command = ("submit", "--array", "1-60", "--submission-id", "rest", "--", shard)
    async with typing_into(*command, environ=environ) as person:
        await person.until("4/60")
        person.type(CTRL_C)
        assert await person.end() == 130, person.seen
    states = Counter[str]()
    for (state, _), count in (await places_of("rest", environ)).items():
        states[state] += count
    assert states == {"SUCCEEDED": 4, "STOPPED": 56}


async def test_ctrl_c_stops_a_real_job(environ: dict[str, str]) -> None:
    command = ("submit", "--submission-id", "nap", "--", "echo asleep; exec sleep 600")
    async with typing_into(*command, environ=environ) as person:
        await person.until("asleep\r\n")
        person.type(CTRL_C)
        assert await person.end() == 130, person.seen
        assert "1 STOPPED" in person.seen
    status = await raymc("status", "nap", "--json", environ=environ)
    assert json.loads(status.out)["status"] == "STOPPED"
