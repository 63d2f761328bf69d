"""What jobs leave as their results, through every door: fake clusters that run real commands."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.raymc import write_config
from tests.support.serving import DOORS, opened
from tests.support.system import FAST, System, fake

import ray_multicluster_scheduler as raymc
from ray_multicluster_scheduler import Job, aio
from ray_multicluster_scheduler.errors import JobsFailed, NoResult, WaitTimeout
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.testing import FakeRay, ShellRunner

PLACE = "$RAY_MULTICLUSTER_RESULT"


def a_cluster(name: str, **options: Any) -> FakeRay:
    return fake(name, runner=ShellRunner(), **options)


@pytest.fixture(params=DOORS)
async def clusters(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[FakeRay, FakeRay]]:
    monkeypatch.setenv("RAY_MULTICLUSTER_HOME", str(tmp_path / "home"))
    async with a_cluster("new") as new, a_cluster("old", ray_version="2.9.3") as old:
        config = write_config(tmp_path, [new.spec(), old.spec()], **FAST)
        async with opened(request.param, config) as variables:
            for name, value in variables.items():
                monkeypatch.setenv(name, value)
            yield new, old
            await asyncio.to_thread(raymc.get_unified_scheduler().stop)


async def submitted(entrypoint: str, **options: Any) -> Job:
    return await asyncio.to_thread(lambda: raymc.submit_job(entrypoint, **options))


async def result_of(entrypoint: str, **options: Any) -> Any:
    job = await submitted(entrypoint, **options)
    return await asyncio.to_thread(job.result)


@pytest.mark.parametrize("cluster", ["new", "old"])
@pytest.mark.usefixtures("clusters")
async def test_json_and_bytes_come_back_from_each_version_of_ray(cluster: str, tmp_path: Path) -> None:
    content = bytes(range(256)) * 1000  # of several blocks
    (tmp_path / "content").write_bytes(content)
    told = await asyncio.gather(
        result_of(f'echo \'{{"a": [1, "é"]}}\' > {PLACE}', only_cluster=cluster),
        result_of(f"cp {tmp_path}/content {PLACE}", only_cluster=cluster),
        result_of(f"echo file://{tmp_path}/content > {PLACE}", only_cluster=cluster),
    )
    assert told == [{"a": [1, "é"]}, content, content]


@pytest.mark.usefixtures("clusters")
async def test_a_job_that_failed_raises_what_wait_raises_and_its_result_is_kept(tmp_path: Path) -> None:
    job = await submitted(f"echo 7 > {PLACE}; exit 3")
    with pytest.raises(JobsFailed, match="exit code 3"):
        await asyncio.to_thread(job.result)
    found = raymc.get_unified_scheduler().service
    assert (await asyncio.to_thread(found.result, str(job))).value == 7


@pytest.mark.usefixtures("clusters")
async def test_a_retried_job_has_the_result_of_its_last_attempt(tmp_path: Path) -> None:
    command = f"echo $RAY_MULTICLUSTER_ATTEMPT > {PLACE}; [ $RAY_MULTICLUSTER_ATTEMPT = 2 ]"
    assert await result_of(command, max_retries=1) == 2
    silent = f"[ $RAY_MULTICLUSTER_ATTEMPT = 2 ] || {{ echo 1 > {PLACE}; exit 1; }}"
    with pytest.raises(NoResult, match="its last attempt left none"):
        await result_of(silent, max_retries=1)


@pytest.mark.usefixtures("clusters")
async def test_without_a_result_it_is_said_why() -> None:
    with pytest.raises(NoResult, match="its last attempt left none in the file that RAY_MULTICLUSTER_RESULT"):
        await result_of("true")
    with pytest.raises(NoResult, match="larger than 1,048,576 bytes"):
        await result_of(f"head -c 2000000 /dev/zero > {PLACE}")
    job = await submitted("sleep 600")
    with pytest.raises(WaitTimeout):
        await asyncio.to_thread(job.result, 0.2)
    with pytest.raises(NoResult, match="it has not ended"):
        await asyncio.to_thread(raymc.get_unified_scheduler().service.result, str(job))
    await asyncio.to_thread(job.stop)


async def test_a_result_that_cannot_be_read_ends_the_job_and_is_told(
    clusters: tuple[FakeRay, FakeRay],
) -> None:
    await result_of(f"echo 1 > {PLACE}", only_cluster="new")  # where the results are is known from now on
    clusters[0].faults.fail(503, only="/api/v0/logs", words="Max concurrent requests exceeded")
    with pytest.raises(NoResult, match=r"could not be read when the job ended.*Max concurrent requests"):
        await result_of(f"echo 7 > {PLACE}", only_cluster="new")


@pytest.mark.usefixtures("clusters")
async def test_the_place_is_in_no_record_and_the_result_in_no_log(tmp_path: Path) -> None:
    job = await submitted(f"echo 7 > {PLACE}; echo done")
    assert await asyncio.to_thread(job.result) == 7
    told = json.dumps(await asyncio.to_thread(job.info))
    assert "raymc-result" not in told
    assert (await asyncio.to_thread(job.logs)).splitlines()[-1] == "done"


@pytest.mark.usefixtures("clusters")
async def test_it_is_awaited_without_a_thread() -> None:
    job = await aio.submit_job(f"echo '[1, 2]' > {PLACE}")
    assert await job.result() == [1, 2]


@pytest.mark.usefixtures("clusters")
async def test_set_result_works_with_what_travels_with_the_job() -> None:
    program = "from ray_multicluster_scheduler import set_result; set_result(b'123')"
    command = f"{sys.executable} -c '{program.replace(chr(39), chr(34))}'"
    assert await result_of(command) == b"123"


async def test_bytes_are_shown_in_base64_and_a_url_as_it_is(tmp_path: Path) -> None:
    async with System(tmp_path, a_cluster("a")) as system:
        for command, kind, value, size in (
            (f"printf 'a\\000' > {PLACE}", "bytes", "YQA=", 2),
            (f"echo s3://bucket/a > {PLACE}", "url", "s3://bucket/a", 14),
        ):
            job = await system.submit(command)
            await system.until(job, JobState.SUCCEEDED)
            found = system.scheduler.service.result(job)
            assert found.model_dump(mode="json") == {
                "submission_id": job,
                "attempt": 1,
                "kind": kind,
                "value": value,
                "size_bytes": size,
            }
