"""Every command of the stock `ray job` against the server, in processes of their own."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.ray_jobs.gateway import a_gateway, several_users
from tests.contract.ray_jobs.ray_job import RayJob
from tests.support.system import fake
from tests.support.trees import make_tree

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.testing import ShellRunner


@pytest.fixture
async def ray_job(tmp_path: Path) -> AsyncIterator[RayJob]:
    a = fake("a", 1, runner=ShellRunner())
    async with a_gateway(tmp_path / "served", a, application=several_users) as gateway:
        yield RayJob(gateway, tmp_path)


async def test_submit_follows_the_log_and_exits_as_the_job_does(ray_job: RayJob, tmp_path: Path) -> None:
    here = make_tree(
        tmp_path / "code",
        {"script.sh": "echo from $PWD; cat data.txt", "data.txt": "shipped\n", "big.bin": "x"},
    )
    environment_json = json.dumps({"env_vars": {"COLOUR": "green"}, "excludes": ["big.bin"]})
    done = await ray_job(
        *("submit", "--working-dir", "./", "--runtime-env-json", environment_json, "--submission-id", "good"),
        *("--", "sh", "-c", "sh script.sh; echo $COLOUR; ls"),
        cwd=here,
    )
    assert done.code == 0, done.out
    assert "Job 'good' submitted successfully" in done.out
    assert "Job 'good' succeeded" in done.out
    assert "shipped" in done.out
    assert "\ngreen\n" in done.out
    assert "\nbig.bin\n" not in done.out

    failed = await ray_job("submit", "--submission-id", "bad", "--", "sh", "-c", "echo oh; exit 3")
    assert failed.code == 1
    assert "Job 'bad' failed" in failed.out
    assert "exit code 3" in failed.out


async def test_a_job_that_waits_says_why_and_is_stopped(ray_job: RayJob) -> None:
    await ray_job("submit", "--no-wait", "--submission-id", "runs", "--", "sh", "-c", "echo begun; sleep 100")
    await ray_job.system.until("runs", JobState.RUNNING)
    await ray_job("submit", "--no-wait", "--submission-id", "waits", "--", "echo", "hi")

    assert "Number 1 in the queue" in (await ray_job("status", "waits")).out
    assert "begun" in (await ray_job("logs", "runs")).out
    stopped = await ray_job("stop", "waits")
    assert (stopped.code, "Job 'waits' was stopped" in stopped.out) == (0, True), stopped.out


async def test_logs_are_followed_over_an_attempt_that_failed(ray_job: RayJob) -> None:
    retried = '{"raymc.retries": "1"}'
    await ray_job(
        *("submit", "--no-wait", "--submission-id", "twice", "--metadata-json", retried),
        *("--", "sh", "-c", "sleep 1; echo tried; exit 3"),
    )
    done = await ray_job("logs", "--follow", "twice")
    log, _, end = done.out.partition("Job 'twice' failed")
    assert log.count("\ntried\n") == 2
    assert "attempt 1 is over; attempt 2 follows" in log
    assert "exit code 3" in end


async def test_the_address_of_the_api_server_comes_before_that_of_a_cluster(ray_job: RayJob) -> None:
    ray_job.environ |= {
        "RAY_API_SERVER_ADDRESS": ray_job.gateway.address + "/",
        "RAY_ADDRESS": "http://127.0.0.1:1",
    }
    done = await ray_job("submit", "--", "echo", "hi")
    assert (done.code, "succeeded" in done.out) == (0, True), done.out
