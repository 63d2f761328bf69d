"""Every command and option of the stock `ray job` against the server, in processes of their own."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.contract.ray_jobs.gateway import USER_HEADER, Gateway, serving, several_users
from tests.integration.raymc import environment
from tests.system import fake
from tests.unit.packages.trees import make_tree

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.testing import ShellRunner

RAY = Path(sys.executable).parent / "ray"
PATIENCE_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Done:
    code: int
    out: str


class RayJob:
    """`ray job ...` with the address of a server."""

    def __init__(self, gateway: Gateway, home: Path) -> None:
        self.gateway = gateway
        self.system = gateway.system
        #: As the documents of Ray have it: in the environment.
        self.environ = environment(RAY_ADDRESS=gateway.address, HOME=str(home), RAY_JOB_HEADERS="{}")

    async def __call__(self, *words: str, cwd: Path | None = None) -> Done:
        process = await asyncio.create_subprocess_exec(
            RAY,
            "job",
            *words,
            cwd=cwd,
            env=self.environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            out, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        finally:
            if process.returncode is None:
                process.kill()
        return Done(code=process.returncode or 0, out=out.decode())


@pytest.fixture
async def ray_job(tmp_path: Path) -> AsyncIterator[RayJob]:
    a = fake("a", 1, gpus=1, resources={"fpga": 1}, runner=ShellRunner())
    async with serving(tmp_path / "served", a, application=several_users) as gateway:
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


async def test_resources_and_our_options_go_along(ray_job: RayJob) -> None:
    done = await ray_job(
        *("submit", "--no-wait", "--submission-id", "wants", "--metadata-json", '{"raymc.priority": "5"}'),
        *("--entrypoint-num-cpus", "0.5", "--entrypoint-num-gpus", "1", "--entrypoint-memory", "1024"),
        *("--entrypoint-resources", '{"fpga": 1}', "--entrypoint-label-selector", '{"region": "!west"}'),
        *("--", "echo", "hi"),
    )
    assert done.code == 0, done.out
    job = (await ray_job.system.finished("wants"))["wants"]
    assert (job.state, job.spec.priority) == (JobState.SUCCEEDED, 5)
    sent = ray_job.system.ray["a"].cluster.jobs["wants"].submission
    assert sent.demand == {"CPU": 0.5, "GPU": 1.0, "memory": 1024.0, "fpga": 1.0}
    assert sent.label_selector == {"region": "!west"}


async def test_a_job_is_looked_at_listed_stopped_and_deleted(ray_job: RayJob) -> None:
    await ray_job("submit", "--no-wait", "--submission-id", "runs", "--", "sh", "-c", "echo begun; sleep 100")
    await ray_job.system.until("runs", JobState.RUNNING)
    await ray_job("submit", "--no-wait", "--submission-id", "waits", "--", "echo", "hi")

    assert "Job is currently running." in (await ray_job("status", "runs")).out
    assert "Number 1 in the queue" in (await ray_job("status", "waits")).out
    listed = (await ray_job("list")).out
    assert "submission_id='runs'" in listed
    assert "submission_id='waits'" in listed
    assert "begun" in (await ray_job("logs", "runs")).out

    stopped = await ray_job("stop", "waits")
    assert (stopped.code, "Job 'waits' was stopped" in stopped.out) == (0, True), stopped.out
    assert (await ray_job("stop", "--no-wait", "runs")).code == 0
    await ray_job.system.finished("runs")

    deleted = await ray_job("delete", "waits")
    assert (deleted.code, "Job 'waits' deleted successfully" in deleted.out) == (0, True), deleted.out
    gone = await ray_job("status", "waits")
    assert (gone.code, "Job waits does not exist" in gone.out) == (1, True), gone.out


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


async def test_headers_say_who_asks(ray_job: RayJob) -> None:
    headers = json.dumps({USER_HEADER: "bob"})
    await ray_job("submit", "--no-wait", "--headers", headers, "--submission-id", "bobs", "--", "echo", "hi")
    assert ray_job.system.scheduler.store.get("bobs").spec.user == "bob"
    assert (await ray_job("status", "bobs")).code == 1
    assert (await ray_job("status", "--headers", headers, "bobs")).code == 0


async def test_another_address_may_be_given_with_the_command(ray_job: RayJob) -> None:
    address = ray_job.gateway.address + "/"
    del ray_job.environ["RAY_ADDRESS"]
    done = await ray_job("submit", "--address", address, "--", "echo", "hi")
    assert (done.code, "succeeded" in done.out) == (0, True), done.out
