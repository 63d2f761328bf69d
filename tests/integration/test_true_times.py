"""Programs ran when their clusters say, however late that is noticed, and whatever clocks they have."""

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.system import System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.server.ray_jobs import job_details
from ray_multicluster_scheduler.service.query import JobQuery

HOUR = 3600.0
#: Ray reports whole milliseconds.
REPORTED = 0.002
#: How far apart two clocks are is known as well as an answer is quick, on a busy machine too.
ANSWERED = 0.5


def no_times(body: bytes) -> bytes:
    """Leave the times out of what a cluster says of jobs."""
    return re.sub(rb'"(start_time|end_time)": \d+', rb'"\1": null', body)


def has_ended(system: System, job_id: str) -> bool:
    """Tell whether a job has ended on its cluster, whether or not anybody has noticed."""
    there = [ray.jobs[job_id] for ray in system.ray.values() if job_id in ray.jobs]
    return any(job.status.final for job in there)


async def ended_alone(system: System, entrypoint: str = "sleep 0.3", **request: Any) -> tuple[str, float]:
    """Let a job end while nobody schedules; return its id, and when a scheduler came back after that."""
    job_id = await system.submit(entrypoint, **request)
    await system.until(job_id, JobState.RUNNING)
    await asyncio.to_thread(system.scheduler.stop)
    await eventually(lambda: has_ended(system, job_id))
    await asyncio.sleep(2 * REPORTED)
    back_at = time.time()
    await system.restart_scheduler()
    await system.finished(job_id)
    return job_id, back_at


def ran_s(job: Job) -> float:
    assert job.started_at is not None
    assert job.ended_at is not None
    return job.ended_at - job.started_at


async def test_a_job_that_ends_while_nobody_schedules_ended_when_its_cluster_says(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        job_id, back_at = await ended_alone(system)
        there = system.ray["a"].jobs[job_id]
        job, (attempt,) = (
            system.scheduler.store.jobs.get(job_id),
            system.scheduler.store.history.attempts(job_id),
        )
        event = system.scheduler.store.history.events(job_id)[-1]
        service = system.scheduler.service
        (view,) = service.get_many([job_id]).values()
        (span,) = service.timeline(since=0.0).spans
        found = service.list_jobs(JobQuery(changed_since=back_at)).jobs

    assert there.ended_at is not None
    assert job.ended_at == pytest.approx(there.ended_at, abs=REPORTED)
    assert job.ended_at < back_at < event.at, "noticed later, and that is when its event was written"
    assert there.submitted_at - REPORTED <= (job.started_at or 0.0) <= job.ended_at
    assert job.changed_at == job.ended_at
    assert not job.end_unreported
    assert found == (), "it has not failed or succeeded since the scheduler is back"
    for each in (attempt, view, span):
        assert (each.started_at, each.ended_at, each.end_unreported) == (job.started_at, job.ended_at, False)
    assert job_details(view)["end_time"] == int(job.ended_at * 1000)


async def test_a_job_that_nobody_saw_running_has_run_as_long_as_its_cluster_says(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), poll_interval_s=60.0) as system:
        ray = system.ray["a"]
        job_id = await system.submit("sleep 0.3")
        await system.until(job_id, JobState.SUBMITTED)
        await asyncio.to_thread(system.scheduler.stop)
        await eventually(lambda: has_ended(system, job_id))
        there = ray.jobs[job_id]
        await system.restart_scheduler()
        job = (await system.finished(job_id))[job_id]
        assert "RUNNING" not in system.story(job_id)

    assert there.ended_at is not None
    assert ran_s(job) == pytest.approx(there.ended_at - there.submitted_at, abs=REPORTED)


@pytest.mark.parametrize("wrong_by", [-HOUR, HOUR])
async def test_a_wrong_clock_of_a_cluster_neither_moves_nor_lengthens_a_run(
    tmp_path: Path, wrong_by: float
) -> None:
    wrong = fake("a", now=lambda: time.time() + wrong_by)
    async with System(tmp_path, wrong) as system:
        job_id, back_at = await ended_alone(system, timeout_s=30.0)
        job = system.scheduler.store.jobs.get(job_id)
        there = wrong.jobs[job_id]

    assert job.state is JobState.SUCCEEDED, "it has not timed out"
    assert there.ended_at is not None
    assert job.placed_at is not None
    assert job.started_at is not None
    assert job.ended_at is not None
    assert job.placed_at <= job.started_at <= job.ended_at <= back_at + ANSWERED
    assert ran_s(job) <= there.ended_at - there.submitted_at + REPORTED
    assert not job.end_unreported


@pytest.mark.parametrize("wrong_by", [-HOUR, 0.0, HOUR])
async def test_a_time_out_counts_by_our_clock(tmp_path: Path, wrong_by: float) -> None:
    async with System(tmp_path, fake("a", now=lambda: time.time() + wrong_by)) as system:
        job_id = await system.submit("sleep 600", timeout_s=0.5)
        job = (await system.finished(job_id))[job_id]

    assert job.state is JobState.FAILED
    assert "longer than its timeout_s of 0.5 s" in job.reason
    assert ran_s(job) >= 0.5


async def test_without_reported_times_an_end_is_when_it_was_noticed(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        system.ray["a"].lie(no_times, only="GET /api/jobs/")
        job_id, back_at = await ended_alone(system)
        job, (attempt,) = (
            system.scheduler.store.jobs.get(job_id),
            system.scheduler.store.history.attempts(job_id),
        )
        (view,) = system.scheduler.service.get_many([job_id]).values()

    assert job.state is JobState.SUCCEEDED
    assert (job.ended_at or 0.0) >= back_at
    assert job.end_unreported
    assert attempt.end_unreported
    assert view.end_unreported


async def test_a_failed_attempt_keeps_its_own_times_when_the_job_is_tried_again(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        job_id, back_at = await ended_alone(system, "sleep 0.3; exit 3", max_retries=1)
        first, second = system.scheduler.store.history.attempts(job_id)
        there = system.ray["a"].jobs[job_id]

    assert there.ended_at is not None
    assert first.ended_at == pytest.approx(there.ended_at, abs=REPORTED)
    assert first.ended_at < back_at < second.placed_at
    assert not first.end_unreported


async def test_the_end_of_a_lost_attempt_is_only_noticed(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), max_infra_retries=0) as system:
        job_id = await system.submit("sleep 600")
        await system.until(job_id, JobState.RUNNING)
        await system.ray["a"].restart()
        job = (await system.finished(job_id))[job_id]

    assert job.state is JobState.FAILED
    assert job.end_unreported
