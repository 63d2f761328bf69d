"""The files of a store: private, identified, of the right version, and clear about what is wrong."""

import contextlib
import logging
import os
import select
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event
from tests.support.builders import NOW, a_spec
from tests.support.leader import Leader

from ray_multicluster_scheduler.errors import ForeignStore, StoreError
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import Store, open_store
from ray_multicluster_scheduler.store.locks import FileLock
from ray_multicluster_scheduler.store.sqlite.database import SqliteDatabase


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "home" / "store"


@pytest.fixture
def store(directory: Path) -> Iterator[Store]:
    opened = open_store(directory)
    yield opened
    opened.close()


def made(directory: Path) -> str:
    """Make a store with one job and return its identity."""
    store = open_store(directory)
    store.jobs.add([("job", a_spec())], now=NOW)
    store.close()
    return store.store_id


def test_a_store_can_be_opened_and_read_while_another_process_writes(directory: Path) -> None:
    made(directory)
    with contextlib.closing(sqlite3.connect(directory / "jobs.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")  # as a program that was stopped in the middle of it
        with contextlib.closing(open_store(directory)) as store:
            assert [job.submission_id for job in store.jobs.list()] == ["job"]


def schema(path: Path) -> dict[str, list[str]]:
    """Return each table and index as SQLite has it, constraints in any order."""
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {
        name: sorted(" ".join(sql.split()).removesuffix(" )").split(", CONSTRAINT "))
        for name, sql in rows
        if name != "alembic_version"
    }


def test_all_that_is_written_survives_closing(directory: Path) -> None:
    store_id = made(directory)

    store = open_store(directory, create=False)

    assert store.store_id == store_id
    assert store.jobs.get("job").submission_id == "job"
    store.close()


def test_no_other_user_can_read_a_store(directory: Path) -> None:
    directory.mkdir(parents=True, mode=0o755)
    old_mask = os.umask(0)
    try:
        store = open_store(directory)
        store.jobs.add([("job", a_spec(runtime_env={"env_vars": {"TOKEN": "s3cret"}}))], now=NOW)
        store.changes.wait(0, timeout_s=0)
    finally:
        os.umask(old_mask)

    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}

    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert files.pop("bells") == 0o700
    assert {"jobs.db", "jobs.db-wal", "jobs.db-shm", "store.id"} <= set(files)
    assert set(files.values()) == {0o600}
    store.close()


def test_a_directory_of_everybody_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)

    with pytest.raises(StoreError, match="open to all users"):
        open_store(tmp_path)

    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_made_when_a_store_is_only_looked_for(directory: Path) -> None:
    with pytest.raises(StoreError, match="there is no job store"):
        open_store(directory, create=False)

    assert not directory.exists()


def test_a_write_is_on_disk_before_it_returns(store: Store, directory: Path) -> None:
    connection = sqlite3.connect(directory / "jobs.db")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()

    with store._database.read() as tx:
        assert tx.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert tx.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        assert tx.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000


@pytest.mark.parametrize("damage", ["deleted", "emptied"])
def test_a_database_that_is_gone_is_not_taken_for_an_empty_queue(directory: Path, damage: str) -> None:
    made(directory)
    database = directory / "jobs.db"
    database.unlink() if damage == "deleted" else database.write_bytes(b"")

    with pytest.raises(ForeignStore, match=r"jobs\.db is gone"):
        open_store(directory)


def test_a_database_of_another_store_is_refused(directory: Path, tmp_path: Path) -> None:
    made(directory)
    made(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "jobs.db", directory / "jobs.db")

    with pytest.raises(ForeignStore, match="is another one than before"):
        open_store(directory)


def test_a_store_that_lost_only_its_marker_is_marked_again(directory: Path) -> None:
    store_id = made(directory)
    (directory / "store.id").unlink()

    open_store(directory).close()

    assert (directory / "store.id").read_text().strip() == store_id


def test_a_database_of_somebody_else_is_left_alone(directory: Path) -> None:
    directory.mkdir(parents=True)
    connection = sqlite3.connect(directory / "jobs.db")
    connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()

    with pytest.raises(ForeignStore, match="not a job store"):
        open_store(directory)

    assert set(schema(directory / "jobs.db")) == {"recipes"}


def test_a_database_deleted_under_a_running_process_takes_no_more_jobs(store: Store, directory: Path) -> None:
    store.jobs.add([("job", a_spec())], now=NOW)
    (directory / "jobs.db").unlink()

    with pytest.raises(ForeignStore, match="deleted or replaced while it was in use"):
        store.jobs.add([("lost", a_spec())], now=NOW)


def test_a_damaged_file_is_named(directory: Path) -> None:
    made(directory)
    (directory / "jobs.db").write_bytes(b"not a database " * 1000)

    with pytest.raises(StoreError, match=r"jobs\.db: the file is damaged"):
        open_store(directory)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match="cannot be opened"):
        open_store(tmp_path / "file" / "store")


def test_a_store_of_a_newer_version_is_refused(directory: Path) -> None:
    made(directory)
    connection = sqlite3.connect(directory / "jobs.db")
    connection.execute("UPDATE alembic_version SET version_num = 'r9999_pre'")
    connection.commit()
    connection.close()

    with pytest.raises(StoreError, match="newer version of this package"):
        open_store(directory)


def test_a_running_process_of_an_older_version_writes_no_more(store: Store, directory: Path) -> None:
    leader = Leader(store)
    leader.add("job")
    with contextlib.closing(sqlite3.connect(directory / "jobs.db", isolation_level=None)) as newer:
        newer.execute("UPDATE alembic_version SET version_num = 'r9999_pre'")

    with pytest.raises(StoreError, match="newer version of this package"):
        store.jobs.add([("next", a_spec())], now=NOW)
    with pytest.raises(StoreError, match="newer version of this package"):
        leader.move("job", JobState.STOPPED)
    with pytest.raises(StoreError, match="newer version of this package"):
        store.leases.release(leader.lease)

    assert store.leases.current(now=NOW) is None  # one of the newer version need not wait for this one to end
    assert [job.state for job in store.jobs.list()] == [JobState.QUEUED]


@pytest.mark.parametrize("name", ["jobs.db-wal", "jobs.db-shm"])
def test_a_log_removed_under_a_running_process_is_noticed_and_loses_nothing(
    store: Store, directory: Path, name: str
) -> None:
    store.jobs.add([("job", a_spec())], now=NOW)
    (directory / name).unlink()

    with pytest.raises(StoreError, match=f"{name} was removed while .* start again"):
        store.jobs.add([("next", a_spec())], now=NOW)

    store.close()
    with contextlib.closing(open_store(directory)) as again:
        assert [job.submission_id for job in again.jobs.list()] == ["job"]


def test_a_removed_log_is_saved_before_its_process_may_be_killed(store: Store, directory: Path) -> None:
    store.jobs.add([("job", a_spec())], now=NOW)
    (directory / "jobs.db-wal").unlink()
    with pytest.raises(StoreError, match="was removed"):
        store.jobs.add([("next", a_spec())], now=NOW)

    copy = directory / "copy.db"  # what a killed process leaves behind
    shutil.copy(directory / "jobs.db", copy)

    with contextlib.closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT submission_id FROM jobs").fetchall() == [("job",)]


@pytest.mark.parametrize("name", ["jobs.db-wal", "jobs.db-shm"])
def test_a_second_process_does_not_open_a_store_whose_log_was_removed(
    store: Store, directory: Path, name: str
) -> None:
    store.jobs.add([("job", a_spec())], now=NOW)
    (directory / name).unlink()

    with pytest.raises(StoreError, match=f"{name} was removed while the job store is in use"):
        open_store(directory)

    store.close()
    with contextlib.closing(open_store(directory)) as second:
        assert [job.submission_id for job in second.jobs.list()] == ["job"]


def test_a_store_opened_twice_in_a_process_keeps_its_log_when_another_process_closes_it(
    store: Store, directory: Path
) -> None:
    store.jobs.add([("job", a_spec())], now=NOW)
    open_store(directory).close()  # must not cost the first one its locks on the database

    code = "import sys; from pathlib import Path; from ray_multicluster_scheduler.store import open_store; "
    code += "open_store(Path(sys.argv[1])).close()"
    subprocess.run([sys.executable, "-c", code, str(directory)], check=True)

    assert (directory / "jobs.db-wal").exists()
    store.jobs.add([("next", a_spec())], now=NOW)


def test_a_forked_child_does_not_keep_a_closed_store_in_use(directory: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from ray_multicluster_scheduler.store import open_store
store = open_store(Path(sys.argv[1]))
child = os.fork()
if child == 0:
    sys.stdin.readline()
    os._exit(0)
store.close()
print(child, flush=True)
sys.stdin.readline()
os.kill(child, 9)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline()

        open_store(directory).close()

        parent.communicate("go\n")


def test_a_program_forks_though_another_process_hangs_while_it_opens_the_store(directory: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from ray_multicluster_scheduler.store import open_store
from ray_multicluster_scheduler.store.sqlite import forks
forks._FORK_WAIT_S = 0.2
store = open_store(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.readline()
if (child := os.fork()) == 0:
    os._exit(0)
os.waitpid(child, 0)
print("forked", store.history.last_event(), flush=True)
sys.stdin.readline()
store.close()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == "open\n"
        hangs = FileLock(directory / "open.lock")
        parent.stdin.write("go\n")
        parent.stdin.flush()
        try:
            assert select.select([parent.stdout], [], [], 60)[0], "it hangs"
            assert parent.stdout.readline() == "forked 0\n"
        finally:
            hangs.release()
        parent.communicate("close\n", timeout=60)
        assert parent.returncode == 0


def test_opening_says_nothing_in_the_log(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    made(directory)

    assert caplog.records == []


def test_a_locked_database_is_said_plainly(store: Store, directory: Path) -> None:
    with (
        store._database.write() as tx
    ):  # the connection that is kept for writers, so that the test need not wait
        tx.exec_driver_sql("PRAGMA busy_timeout=1")
    blocker = sqlite3.connect(directory / "jobs.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreError, match="another process kept it locked"):
        store.jobs.add([("job", a_spec())], now=NOW)

    assert store.jobs.list() == ()
    blocker.close()
    assert store.jobs.add([("job", a_spec())], now=NOW)


def test_after_an_error_of_the_disk_nothing_more_is_written(directory: Path) -> None:
    made(directory)
    database = SqliteDatabase(directory / "jobs.db")

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    event.listen(database._engine, "before_cursor_execute", fail)
    with pytest.raises(StoreError, match="the disk reported an error"), database.write():
        pass
    event.remove(database._engine, "before_cursor_execute", fail)

    with pytest.raises(StoreError, match="writes no more"), database.write():
        pass
    database.close()


def test_an_error_carries_no_secret_of_a_job(store: Store) -> None:
    with store._database.write() as tx:
        tx.exec_driver_sql("CREATE TRIGGER no BEFORE INSERT ON jobs BEGIN SELECT RAISE(ABORT, 'no'); END")

    with pytest.raises(StoreError) as caught:
        store.jobs.add([("job", a_spec(runtime_env={"env_vars": {"TOKEN": "s3cret"}}))], now=NOW)

    assert "s3cret" not in f"{caught.value}{caught.value.__cause__}"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mountpoint = tmp_path / "disk"
    mountpoint.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(mountpoint)]
    if os.geteuid() != 0 or not shutil.which("mount") or subprocess.run(mount, check=False).returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    yield mountpoint
    subprocess.run(["umount", str(mountpoint)], check=True)


def test_a_full_disk_is_said_plainly_and_what_was_accepted_stays(small_disk: Path) -> None:
    store = open_store(small_disk / "store")
    accepted: list[str] = []

    def submit_until_full() -> None:
        for number in range(10_000):
            store.jobs.add([(f"job-{number}", a_spec(entrypoint="x" * 4000))], now=NOW)
            accepted.append(f"job-{number}")

    with pytest.raises(StoreError, match="the disk is full; nothing was written"):
        submit_until_full()

    assert accepted
    assert {job.submission_id for job in store.jobs.list()} == set(accepted)
    store.close()


def test_a_write_that_is_interrupted_as_it_begins_leaves_nothing_open(store: Store) -> None:
    store.jobs.add([("first", a_spec())], now=NOW)
    engine = store._database._engine

    def interrupt(_: object) -> None:
        event.remove(engine, "begin", interrupt)
        raise KeyboardInterrupt

    event.listen(engine, "begin", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.jobs.add([("second", a_spec())], now=NOW)

    store.jobs.add([("third", a_spec())], now=NOW)
    assert [job.submission_id for job in store.jobs.list()] == ["third", "first"]


#: Each query that is asked all the time, and the index that must serve it however long the history is.
PLANS = {
    "runnable": "ix_jobs_state",
    "live": "ix_jobs_state",
    "list_jobs": "ix_jobs_state",
    "blocked": "ix_jobs_stopping",
    "live_remote_ids": "ix_attempts_live",
}


@pytest.mark.parametrize("query", PLANS)
def test_what_is_asked_all_the_time_uses_an_index(store: Store, query: str) -> None:
    Leader(store).add("job", user="ann")
    calls = {
        "runnable": lambda: store.queue.runnable(now=NOW),
        "live": store.queue.live,
        "list_jobs": lambda: store.jobs.list(states=[JobState.FAILED, JobState.STOPPED], limit=5),
        "blocked": lambda: store.queue.blocked(now=NOW),
        "live_remote_ids": lambda: store.history.live_remote_ids("a"),
    }
    plans: list[str] = []

    def explain(
        connection: object, cursor: sqlite3.Cursor, statement: str, parameters: tuple, *_: object
    ) -> None:
        if statement.startswith("SELECT"):
            plan = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
            plans.extend(row[3] for row in plan)

    event.listen(store._database._engine, "before_cursor_execute", explain)
    calls[query]()

    assert any(PLANS[query] in plan for plan in plans)
    assert not [plan for plan in plans if plan.startswith("SCAN") and "INDEX" not in plan]
    assert not [plan for plan in plans if "TEMP B-TREE" in plan and query == "list_jobs"]
