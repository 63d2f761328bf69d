"""A store that cannot be written for a while delays jobs and their submitters, and loses nothing."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.oracle import broken_promises, eventually
from tests.system import System, fake

from ray_multicluster_scheduler.errors import StoreBusy
from ray_multicluster_scheduler.model.states import JobState


async def test_a_store_that_is_locked_for_too_long_ends_nothing_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ray_multicluster_scheduler.store.database.BUSY_TIMEOUT_S", 1)
    async with System(tmp_path, fake("a")) as system:
        job_id = await system.submit("sleep 2")
        await system.until(job_id, JobState.RUNNING)
        database = tmp_path / "state" / "jobs.db"
        with closing(sqlite3.connect(database, isolation_level=None)) as locker:
            locker.execute("BEGIN IMMEDIATE")
            await eventually(lambda: "cannot be written now" in caplog.text)
            with pytest.raises(StoreBusy, match="another process kept it locked"):
                await system.submit("echo")
        later = await system.submit("echo")
        done = await system.finished(job_id, later)
        assert {job.state for job in done.values()} == {JobState.SUCCEEDED}
        assert not broken_promises(system.scheduler.store, system.ray.values(), [job_id, later])


async def test_a_scheduler_that_is_stopped_while_the_store_is_locked_ends_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray_multicluster_scheduler.store.database.BUSY_TIMEOUT_S", 1)
    async with System(tmp_path, fake("a")) as system:
        job_id = await system.submit("sleep 2")
        await system.until(job_id, JobState.RUNNING)
        with closing(sqlite3.connect(tmp_path / "state" / "jobs.db", isolation_level=None)) as locker:
            locker.execute("BEGIN IMMEDIATE")
            await asyncio.to_thread(system.scheduler.stop)
        system.scheduler = system.another_scheduler()
        system.scheduler.start()
        await system.until(job_id, JobState.SUCCEEDED)
        await asyncio.to_thread(system.scheduler.stop)
