"""History that is removed: by the leader on its own, by `raymc prune`, and off the disk."""

import contextlib
import sqlite3
from pathlib import Path

import pytest
from tests.support.builders import NOW, a_spec
from tests.support.job_commands import Commands, raymc, two
from tests.support.leader import Leader
from tests.support.system import System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.model.storage import Keep
from ray_multicluster_scheduler.service.jobs import prune_all
from ray_multicluster_scheduler.store import Store, open_store

__all__ = ["raymc", "two"]

NOTHING = Keep(jobs_s=0, logs_s=0, secrets_s=0, audit_s=0, jobs=0, audit=0, size_bytes=0)
DAY = 86400.0


def fill(store: Store, count: int = 60, log: str = "x" * 50_000) -> None:
    leader = Leader(store)
    for number in range(count):
        leader.add(f"job-{number}", JobState.SUCCEEDED)
        store.jobs.apply([], epoch=leader.lease.epoch, now=NOW, logs=[(f"job-{number}", 1, log)])
    store.leases.release(leader.lease)


async def test_a_leader_prunes_by_itself_and_runs_jobs_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray_multicluster_scheduler.engine.cleanup.FIRST_AFTER_S", 0.0)
    monkeypatch.setattr("ray_multicluster_scheduler.engine.cleanup.EVERY_S", 0.2)
    async with System(tmp_path, fake("a", 8), keep_jobs=3) as system:
        ids = await system.submit_many([{"entrypoint": "echo"}] * 12)
        running = await system.submit("sleep 1000")

        store = system.scheduler.store
        await eventually(lambda: len(store.jobs.list()) == 4)

        left = {job.submission_id for job in store.jobs.list()}
        assert running in left
        assert left - {running} < set(ids)
        assert store.jobs.get(running).state in {JobState.SUBMITTED, JobState.RUNNING}


def test_space_is_given_back_to_the_file_system(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    fill(store)
    full = store.retention.space().file_bytes
    prune_all(store, NOTHING, now=NOW + 1)
    assert store.retention.space().file_bytes == full  # not yet

    assert store.retention.compact(rewrite=False)

    path = tmp_path / "store" / "jobs.db"
    assert path.stat().st_size == store.retention.space().file_bytes < full / 4
    assert path.with_name("jobs.db-wal").stat().st_size == 0
    store.close()


def test_a_store_that_an_older_version_made_is_rewritten_once(tmp_path: Path) -> None:
    path = tmp_path / "store" / "jobs.db"
    open_store(path.parent).close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as older:
        older.execute("PRAGMA auto_vacuum=NONE")
        older.execute("VACUUM")
    store = open_store(path.parent)
    fill(store)
    full = store.retention.space().file_bytes
    prune_all(store, NOTHING, now=NOW + 1)

    assert not store.retention.compact(rewrite=False)
    assert store.retention.space().file_bytes == full
    assert store.retention.compact(rewrite=True)
    assert path.stat().st_size == store.retention.space().file_bytes < full / 4
    assert store.retention.compact(rewrite=False)  # from now on

    store.jobs.add([("next", a_spec())], now=NOW)
    store.close()


def test_the_command_says_what_would_go_and_what_went(raymc: Commands) -> None:
    raymc.stop_leading()  # the test moves the jobs itself
    with raymc.scheduler() as opened:
        now = SystemClock().now()
        for name, age in (("old", 100 * DAY), ("young", DAY)):
            opened.store.jobs.add([(name, a_spec())], now=now - age)
        lease = opened.store.leases.acquire("test", ttl_s=60, now=now)
        assert lease is not None
        leader = Leader.__new__(Leader)
        leader.store, leader.lease = opened.store, lease
        leader.move("old", JobState.FAILED, now=now - 100 * DAY)
        leader.move("young", JobState.FAILED, now=now - DAY)
        opened.store.jobs.add([("open", a_spec())], now=now - 100 * DAY)
        opened.store.leases.release(lease)

    dry = raymc.run("prune", "--dry-run")
    assert dry.code == 0
    assert dry.out.startswith("Would remove 1 jobs and 0 logs")
    assert raymc.json("prune", "--dry-run", "--older-than", "12h")["jobs"] == 2
    assert raymc.json("prune", "--dry-run", "--keep", "0")["jobs"] == 2

    done = raymc.run("prune")
    assert done.code == 0
    assert done.out.startswith("Removed 1 jobs and 0 logs")
    with raymc.scheduler() as opened:
        assert {job.submission_id for job in opened.store.jobs.list()} == {"young", "open"}

    assert raymc.json("prune", "--older-than", "12h")["jobs"] == 1
    with raymc.scheduler() as opened:
        assert {job.submission_id for job in opened.store.jobs.list()} == {"open"}


@pytest.mark.parametrize("span", ["30", "tomorrow", "-3d", "3y"])
def test_a_span_that_cannot_be_read_is_refused(raymc: Commands, span: str) -> None:
    done = raymc.run("prune", f"--older-than={span}")
    assert done.code == 2
    assert "is no span of time; write 90s, 30m, 12h, 30d or 2w" in " ".join(
        done.err.replace("│", " ").split()
    )
