"""Somebody sets the clock while jobs wait and run: nothing is ended by it, and nothing waits for hours."""

import asyncio
import time
from pathlib import Path

import pytest
from tests.support.system import System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.model.states import JobState

HOUR = 3600.0
STEPS = pytest.mark.parametrize("step", [2 * HOUR, -3 * HOUR], ids=["forward", "back"])


class ShiftedTime:
    """The machine's time as somebody has set it."""

    def __init__(self) -> None:
        self.by_s = 0.0

    def now(self) -> float:
        return time.time() + self.by_s


@pytest.fixture
def shifted(monkeypatch: pytest.MonkeyPatch) -> ShiftedTime:
    shifted = ShiftedTime()
    monkeypatch.setattr(SystemClock, "now", lambda _clock: shifted.now())
    return shifted


def in_order(system: System, job_id: str) -> bool:
    job = system.scheduler.store.jobs.get(job_id)
    assert job.started_at is not None
    assert job.ended_at is not None
    return job.accepted_at <= job.started_at <= job.ended_at


@STEPS
async def test_no_job_is_ended_by_a_clock_that_is_set_under_its_leader(
    tmp_path: Path, shifted: ShiftedTime, caplog: pytest.LogCaptureFixture, step: float
) -> None:
    async with System(tmp_path, fake("a", 1)) as system:
        runs = await system.submit("sleep 4", timeout_s=HOUR)
        waits = await system.submit("sleep 0.1", queue_timeout_s=HOUR)
        await system.until(runs, JobState.RUNNING)

        shifted.by_s = step

        await eventually(lambda: "the clock was set; leading anew" in caplog.text)
        await system.finished(runs, waits)
        store = system.scheduler.store
        assert [store.jobs.get(each).state for each in (runs, waits)] == [JobState.SUCCEEDED] * 2
        assert store.jobs.get(runs).attempt == 1
        assert in_order(system, runs)
        assert in_order(system, waits)


@STEPS
async def test_no_job_is_ended_by_a_clock_that_is_set_between_two_leaders(
    tmp_path: Path, shifted: ShiftedTime, step: float
) -> None:
    async with System(tmp_path, fake("a", 1)) as system:
        runs = await system.submit("sleep 4", timeout_s=HOUR)
        waits = await system.submit("sleep 0.1", queue_timeout_s=HOUR)
        await system.until(runs, JobState.RUNNING)
        await asyncio.to_thread(system.scheduler.stop)

        shifted.by_s = step

        system.scheduler = system.another_scheduler()
        system.scheduler.start()
        await system.finished(runs, waits)
        store = system.scheduler.store
        assert [store.jobs.get(each).state for each in (runs, waits)] == [JobState.SUCCEEDED] * 2
        assert in_order(system, runs)
        await asyncio.to_thread(system.scheduler.stop)


async def test_a_retry_does_not_wait_for_hours_when_the_clock_is_set_back(
    tmp_path: Path, shifted: ShiftedTime
) -> None:
    async with System(tmp_path, fake("a"), retry_delay_s=2.0) as system:
        job_id = await system.submit("exit 1", max_retries=1)
        await eventually(lambda: system.scheduler.store.jobs.get(job_id).not_before > 0)

        shifted.by_s = -3 * HOUR

        await eventually(lambda: system.scheduler.store.jobs.get(job_id).final)
        assert system.scheduler.store.jobs.get(job_id).attempt == 2
