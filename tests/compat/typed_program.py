"""What type checkers know of the results: `make check` holds it to mypy and to pyright. Nothing runs it."""

from datetime import datetime
from typing import Any

import ray
from typing_extensions import assert_type

from ray_multicluster_scheduler import (
    Job,
    JobInfo,
    Jobs,
    aio,
    get_job_info,
    get_job_status,
    job,
    jobs,
    retry_job,
    submit_job,
    submit_jobs,
    submit_task,
    wait_for_all_jobs,
)
from ray_multicluster_scheduler.client.job import JobStatus
from ray_multicluster_scheduler.model.states import JobState


def of_one_job() -> None:
    one = submit_job("echo hi", priority=1)
    assert_type(one, Job)
    assert_type(one.status, JobStatus)
    assert_type(one.state, JobState)
    assert_type(one.cluster, str | None)
    assert_type(one.ended_at, datetime | None)
    assert_type(one.wait(timeout=1), Job)
    assert_type(one.logs(), str)
    assert_type(get_job_status(one), JobStatus)
    assert_type(job("name"), Job)
    assert_type(retry_job(one), Job)
    info = get_job_info(one)
    assert_type(info, JobInfo)
    assert_type(info.started_at, float | None)
    assert_type(info["status"], Any)
    assert_type(wait_for_all_jobs([one]), bool)


def of_several() -> None:
    assert_type(submit_jobs([{"entrypoint": "echo hi"}]), Jobs)
    assert_type(jobs(state="FAILED").failed, Jobs)
    for ended in jobs().as_completed():
        assert_type(ended, Job)


def of_a_task() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    task_id, ref = submit_task(add, (1, 2))
    assert_type(task_id, str)
    # mypy does not look into Ray here; pyright must find this mistake.
    _text: str = ray.get(ref)  # pyright: ignore[reportAssignmentType]


async def of_asyncio() -> None:
    one = await aio.submit_job("echo hi", priority=1)
    assert_type(one, aio.Job)
    assert_type(await one.status, JobStatus)
    assert_type(await one, aio.Job)
    assert_type(await aio.submit_jobs([{"entrypoint": "echo hi"}]), aio.Jobs)
    assert_type(await aio.jobs(state="FAILED"), aio.Jobs)
    assert_type(await aio.get_job_info(one), JobInfo)
    async for line in one.follow():
        assert_type(line, str)
