"""A store that cannot be written for a while delays jobs and their submitters, and loses nothing."""

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.oracle import broken_promises
from tests.support.system import System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.errors import StoreBusy
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store.queue import Queue


async def test_a_store_that_is_locked_for_too_long_ends_nothing_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ray_multicluster_scheduler.store.sqlite.database.BUSY_TIMEOUT_S", 1)
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
    monkeypatch.setattr("ray_multicluster_scheduler.store.sqlite.database.BUSY_TIMEOUT_S", 1)
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


async def test_a_queue_that_takes_longer_to_read_than_the_lease_lasts_has_one_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrivals = Queue.arrivals

    def slow_arrivals(queue: Queue, **page: Any) -> Any:
        time.sleep(0.8)
        return arrivals(queue, **page)

    async with System(tmp_path, fake("a", 16), lease_ttl_s=8.0) as system:
        await asyncio.to_thread(system.scheduler.stop)
        monkeypatch.setattr("ray_multicluster_scheduler.engine.store_io.PAGE", 1)
        monkeypatch.setattr(Queue, "arrivals", slow_arrivals)
        system.scheduler, rival = system.another_scheduler(), system.another_scheduler()
        store, clock = system.scheduler.store, system.scheduler.clock
        ids = await system.submit_many([{"entrypoint": "echo"}] * 12)
        system.scheduler.start()
        await eventually(lambda: store.leases.current(now=clock.now()))
        first = store.leases.current(now=clock.now())
        rival.start()
        await system.finished(*ids)
        last = store.leases.current(now=clock.now())
        await asyncio.to_thread(rival.stop)
        await asyncio.to_thread(system.scheduler.stop)
        assert first is not None
        assert last is not None
        assert first.epoch == last.epoch
