"""What jobs leave as their results, through every door: fake clusters that run real commands."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.builders import a_job, a_spec
from tests.support.raymc import write_config
from tests.support.serving import DOORS, opened
from tests.support.system import FAST, System, fake

import ray_multicluster_scheduler as raymc
from ray_multicluster_scheduler import aio
from ray_multicluster_scheduler.errors import JobsFailed, NoResult, WaitTimeout
from ray_multicluster_scheduler.executors.registry import RAY_SESSION
from ray_multicluster_scheduler.model.result import read_result
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.make_views import show_result
from ray_multicluster_scheduler.testing import FakeRay, ShellRunner

PLACE = "$RAY_MULTICLUSTER_RESULT"


def a_cluster(name: str, **options: Any) -> FakeRay:
    return fake(name, runner=ShellRunner(), **options)


@pytest.mark.parametrize("door", DOORS)
async def test_a_result_comes_back_through_each_door(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_MULTICLUSTER_HOME", str(tmp_path / "home"))
    (tmp_path / "large").write_bytes(b"\x80" * 3_000_000)
    program = 'from ray_multicluster_scheduler import set_result; set_result(b"123")'
    async with AsyncExitStack() as stack:
        ray = await stack.enter_async_context(a_cluster("a"))
        config = write_config(tmp_path, [ray.spec()], **FAST)
        variables = await stack.enter_async_context(opened(door, config))
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        jobs = [
            await aio.submit_job(command)
            for command in (
                f'echo \'{{"a": [1, "é"]}}\' > {PLACE}',
                f"{sys.executable} -c '{program}'",
                f"echo file://{tmp_path}/large > {PLACE}",
                f"echo 7 > {PLACE}; exit 3",
                "true",
                "sleep 600",
            )
        ]
        assert await jobs[0].result() == await asyncio.to_thread(raymc.Job(jobs[0]).result) == {"a": [1, "é"]}
        assert await jobs[1].result() == b"123"
        assert await jobs[2].result() == (tmp_path / "large").read_bytes()
        with pytest.raises(JobsFailed, match="exit code 3"):
            await jobs[3].result()
        service = raymc.get_unified_scheduler().service
        assert (await asyncio.to_thread(service.result, str(jobs[3]))).value == 7
        with pytest.raises(NoResult, match="left none in the file that RAY_MULTICLUSTER_RESULT names"):
            await jobs[4].result()
        with pytest.raises(WaitTimeout):
            await jobs[5].result(0.1)
        with pytest.raises(NoResult, match="it has not ended"):
            await asyncio.to_thread(service.result, str(jobs[5]))
        await jobs[5].stop()
        await asyncio.to_thread(raymc.get_unified_scheduler().stop)


@pytest.fixture
async def system(tmp_path: Path) -> AsyncIterator[System]:
    async with System(tmp_path, a_cluster("new"), a_cluster("old", ray_version="2.9.3")) as running:
        yield running


async def left(system: System, entrypoint: str, **options: Any) -> Any:
    """Return what the result of a job is, once it has ended."""
    job = await system.submit(entrypoint, **options)
    await system.finished(job)
    return system.scheduler.service.result(job).model_dump(mode="json")["value"]


@pytest.mark.parametrize("cluster", ["new", "old"])
async def test_every_byte_comes_back_from_each_version_of_ray(
    system: System, cluster: str, tmp_path: Path
) -> None:
    content = bytes(range(256)) * 1000  # of several blocks
    (tmp_path / "content").write_bytes(content)
    job = await system.submit(f"cp {tmp_path}/content {PLACE}", only_cluster=cluster)
    await system.until(job, JobState.SUCCEEDED)
    found = system.scheduler.store.history.load_result(job)
    assert found is not None
    assert read_result(found[1].content).value == content
    with pytest.raises(NoResult, match="larger than 1,048,576 bytes"):
        await left(system, f"head -c 2000000 /dev/zero > {PLACE}", only_cluster=cluster)


async def test_bytes_are_shown_in_base64_and_a_url_as_it_is(system: System) -> None:
    assert await left(system, f"printf 'a\\000' > {PLACE}") == "YQA="
    assert await left(system, f"echo s3://bucket/a > {PLACE}") == "s3://bucket/a"


async def test_a_retried_job_has_the_result_of_its_last_attempt(system: System) -> None:
    again = "[ $RAY_MULTICLUSTER_ATTEMPT = 2 ]"
    assert await left(system, f"echo $RAY_MULTICLUSTER_ATTEMPT > {PLACE}; {again}", max_retries=1) == 2
    with pytest.raises(NoResult, match="its last attempt left none"):
        await left(system, f"{again} || {{ echo 1 > {PLACE}; exit 1; }}", max_retries=1)


async def test_a_result_that_cannot_be_read_ends_the_job_and_is_told(system: System) -> None:
    assert await left(system, f"echo 1 > {PLACE}", only_cluster="new") == 1
    system.ray["new"].fail(503, only="/api/v0/logs", words="Max concurrent requests exceeded")
    with pytest.raises(NoResult, match=r"could not be read when the job ended.*Max concurrent requests"):
        await left(system, f"echo 7 > {PLACE}", only_cluster="new")


async def test_where_a_cluster_shows_no_files_jobs_run_without_a_place(system: System) -> None:
    system.ray["new"].fail(404, only="/api/v0/logs/file")
    job = await system.submit(f"[ -z {PLACE} ]", only_cluster="new")
    await system.until(job, JobState.SUCCEEDED)


async def test_the_place_is_in_no_record_and_the_result_in_no_log(system: System) -> None:
    job = await system.submit(f"echo 7 > {PLACE}; echo done")
    await system.until(job, JobState.SUCCEEDED)
    detail = system.scheduler.service.detail(job)
    assert "raymc-result" not in json.dumps(detail.model_dump(mode="json"))
    assert (detail.logs or "").splitlines()[-1] == "done"
    assert detail.entrypoint == f"echo 7 > {PLACE}; echo done"


def test_an_executor_without_a_process_says_that_it_has_none() -> None:
    session = a_job(spec=a_spec(executor=RAY_SESSION.name), state=JobState.SUCCEEDED)
    with pytest.raises(NoResult, match="'ray-client' runs no program on a cluster"):
        show_result(session, None, (), can=RAY_SESSION.can)
