"""Backup, restore and move, from every database to every database: nothing is lost, no number given twice."""

import contextlib
import os
import sqlite3
import stat
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete, update
from tests.contract.store.filled_store import content, fill
from tests.support.builders import NOW, a_spec
from tests.support.newer_version import KNOW_IT, NEWER, newer_migrations
from tests.support.postgres import PostgresServer

from ray_multicluster_scheduler import maintenance
from ray_multicluster_scheduler.cluster_health.diagnosis import Verdict
from ray_multicluster_scheduler.config.store_place import StorePlace
from ray_multicluster_scheduler.errors import ForeignStore, InvalidRequest, StoreError
from ray_multicluster_scheduler.maintenance import back_up, examine, move, restore
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import Store, open_at
from ray_multicluster_scheduler.store.open_place import existing_backup
from ray_multicluster_scheduler.store.schema import revision as schema_revision
from ray_multicluster_scheduler.store.schema.tables import attempts, dependencies, jobs, packages
from ray_multicluster_scheduler.store.sqlite.database import SqliteDatabase

KINDS = ("sqlite", "postgres")
NewPlace = Callable[[str], StorePlace]


@pytest.fixture
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> NewPlace:
    """Return a function that makes the name of a place where no store is."""

    def make(kind: str) -> StorePlace:
        directory = tmp_path / f"place-{uuid.uuid4().hex[:8]}"
        if kind == "sqlite":
            return StorePlace(directory=directory)
        server: PostgresServer = request.getfixturevalue("postgres")
        return StorePlace(directory=directory, url=server.url(f"t{uuid.uuid4().hex[:12]}"))

    return make


@pytest.fixture(params=KINDS)
def source(request: pytest.FixtureRequest, new_place: NewPlace) -> StorePlace:
    return new_place(request.param)


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, new_place: NewPlace) -> StorePlace:
    return new_place(request.param)


@contextlib.contextmanager
def opened(place: StorePlace) -> Iterator[Store]:
    with contextlib.closing(open_at(place)) as store:
        yield store


def quiet(_done: int, _total: int) -> None:
    """Show no progress."""


def assert_goes_on(store: Store, *, newest_seq: int, newest_event: int) -> None:
    """A store that was copied numbers new rows after all that were ever there."""
    (job,) = store.jobs.add([("later", a_spec())], now=NOW)
    assert job.seq > newest_seq
    assert store.history.last_event() > newest_event
    assert [each.submission_id for each, _ in store.queue.arrivals(after=newest_seq, limit=10)] == ["later"]


def newest(store: Store) -> tuple[int, int]:
    with store._database.read() as tx:
        numbers = store._database.last_numbers(tx)
    return numbers["jobs"], numbers["events"]


def test_a_backup_is_restored_with_everything_in_it(
    source: StorePlace, target: StorePlace, tmp_path: Path
) -> None:
    file = tmp_path / "backup.db"
    with opened(source) as store:
        leader = fill(store)
        before, (seq, event) = content(store), newest(store)
        copied = back_up(source, file, replace=False, progress=quiet)
        leader.add("after the backup")

    assert copied.store_id == store.store_id
    assert copied.rows == sum(len(rows) for rows in before.values())
    assert copied.broken == ()
    restored = restore(file, target, progress=quiet)
    assert restored.store_id == store.store_id
    with opened(target) as again:
        assert content(again, without=frozenset({"lease"})) == {
            name: rows for name, rows in before.items() if name != "lease"
        }
        assert again.leases.current(now=NOW) is None
        lease = again.leases.acquire("next", ttl_s=10.0, now=NOW)
        assert lease is not None
        assert lease.epoch > leader.lease.epoch
        assert_goes_on(again, newest_seq=seq, newest_event=event)


def test_a_backup_is_one_private_file_and_a_store_by_itself(source: StorePlace, tmp_path: Path) -> None:
    with opened(source) as store:
        fill(store)
    folder = tmp_path / "backups"
    folder.mkdir()
    old_mask = os.umask(0)
    try:
        back_up(source, folder / "backup.db", replace=False, progress=quiet)
    finally:
        os.umask(old_mask)

    assert [path.name for path in folder.iterdir()] == ["backup.db"]
    assert stat.S_IMODE((folder / "backup.db").stat().st_mode) == 0o600
    own = StorePlace(directory=tmp_path / "own")
    own.directory.mkdir()
    (folder / "backup.db").rename(own.directory / "jobs.db")
    with opened(own) as again:
        assert again.store_id == store.store_id
        assert again.jobs.get("is-RUNNING").state is JobState.RUNNING
        with again._database.read() as tx:
            assert again._database.can_shrink(tx)


def test_an_existing_file_is_replaced_only_if_asked(source: StorePlace, tmp_path: Path) -> None:
    with opened(source) as store:
        store.jobs.add([("job", a_spec())], now=NOW)
    file = tmp_path / "backup.db"
    file.write_text("mine")
    with pytest.raises(StoreError, match=r"backup\.db exists; .* --force"):
        back_up(source, file, replace=False, progress=quiet)
    assert file.read_text() == "mine"
    back_up(source, file, replace=True, progress=quiet)
    assert file.read_bytes().startswith(b"SQLite format 3")


def test_a_backup_that_fails_leaves_nothing(
    source: StorePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(source) as store:
        fill(store)
    folder = tmp_path / "backups"
    folder.mkdir()

    def fail(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_up(source, folder / "backup.db", replace=False, progress=fail)
    assert list(folder.iterdir()) == []
    with pytest.raises(StoreError, match="cannot be written: No such file or directory"):
        back_up(source, folder / "nowhere" / "backup.db", replace=False, progress=quiet)
    monkeypatch.setattr(maintenance, "_batches", lambda *_: (row for row in ()))
    with pytest.raises(StoreError, match="the copy is not complete"):
        back_up(source, folder / "backup.db", replace=False, progress=quiet)
    assert list(folder.iterdir()) == []


def test_a_backup_sees_one_moment_while_others_write(source: StorePlace, tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    with opened(source) as store, opened(source) as other:
        fill(store)
        written = []

        def write(_done: int, _total: int) -> None:
            written.append(other.jobs.add([(f"meanwhile-{len(written)}", a_spec())], now=NOW))

        copied = back_up(source, file, replace=False, progress=write)
        before = len(store.jobs.list()) - len(written)
    assert written
    assert sum(copied.jobs.values()) == before
    assert copied.broken == ()


def test_nothing_is_restored_over_a_store(source: StorePlace, target: StorePlace, tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    with opened(source) as store:
        fill(store)
    back_up(source, file, replace=False, progress=quiet)
    with opened(target) as there:
        there.jobs.add([("mine", a_spec())], now=NOW)
    with pytest.raises(StoreError, match=r"already\. Name another"):
        restore(file, target, progress=quiet)
    with opened(target) as there:
        assert [job.submission_id for job in there.jobs.list()] == ["mine"]


def test_what_is_no_backup_is_refused_before_anything_is_made(target: StorePlace, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no file"):
        restore(tmp_path / "gone.db", target, progress=quiet)
    (tmp_path / "text.db").write_text("not a database " * 1000)
    with pytest.raises(StoreError, match="damaged or not a job store"):
        restore(tmp_path / "text.db", target, progress=quiet)
    with contextlib.closing(sqlite3.connect(tmp_path / "recipes.db")) as other:
        other.execute("CREATE TABLE recipes (name TEXT)")
    with pytest.raises(StoreError, match="is not a job store"):
        restore(tmp_path / "recipes.db", target, progress=quiet)
    with pytest.raises(StoreError, match="there is no job store"):
        examine(target)


def test_a_damaged_backup_is_refused(source: StorePlace, target: StorePlace, tmp_path: Path) -> None:
    with opened(source) as store:
        fill(store)
    file = tmp_path / "backup.db"
    back_up(source, file, replace=False, progress=quiet)
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as hurt:
        hurt.execute(
            "DELETE FROM jobs WHERE submission_id = 'is-RUNNING'"
        )  # and its attempts and events stay
    with pytest.raises(StoreError, match="is damaged; nothing was restored"):
        restore(file, target, progress=quiet)
    with pytest.raises(StoreError, match="there is no job store"):
        examine(target)


def test_a_backup_of_an_older_version_is_brought_up_to_date(
    target: StorePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "backup.db"
    place = StorePlace(directory=tmp_path / "old")
    with opened(place) as store:
        store.jobs.add([("job", a_spec())], now=NOW)
    back_up(place, file, replace=False, progress=quiet)
    unchanged = file.read_bytes()
    monkeypatch.setattr(schema_revision, "MIGRATIONS", newer_migrations(tmp_path))
    for module in (*KNOW_IT, maintenance):
        monkeypatch.setattr(module, "REVISION", NEWER)

    with existing_backup(file) as database, database.read() as tx:
        assert set(tx.exec_driver_sql("SELECT colour FROM jobs").scalars()) == {"green"}
    restore(file, target, progress=quiet)

    assert file.read_bytes() == unchanged
    with opened(target) as again:
        assert [job.submission_id for job in again.jobs.list()] == ["job"]


def test_a_backup_of_before_the_first_release_is_refused(target: StorePlace, tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    place = StorePlace(directory=tmp_path / "old")
    with opened(place) as store:
        store.jobs.add([("job", a_spec())], now=NOW)
    back_up(place, file, replace=False, progress=quiet)
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as older:
        older.execute("UPDATE alembic_version SET version_num = '0012_pre'")
    with pytest.raises(StoreError, match="before the first release"):
        restore(file, target, progress=quiet)


def test_a_store_of_another_version_is_not_copied(source: StorePlace, tmp_path: Path) -> None:
    with opened(source) as store, store._database.write() as tx:
        tx.exec_driver_sql("UPDATE alembic_version SET version_num = 'r9999_pre'")
    with pytest.raises(StoreError, match="has the schema 'r9999_pre', and this version has"):
        back_up(source, tmp_path / "backup.db", replace=False, progress=quiet)
    (check, *_) = examine(source).checks
    assert check.verdict is Verdict.NOTE
    assert "r9999_pre" in check.says


def test_a_moved_store_is_whole_in_its_new_place(source: StorePlace, target: StorePlace) -> None:
    with opened(source) as store:
        leader = fill(store)
        before, (seq, event) = content(store), newest(store)

        copied = move(source, target, progress=quiet)

        for write in (
            lambda: store.jobs.add([("late", a_spec())], now=NOW),
            lambda: leader.move("is-RUNNING", JobState.SUCCEEDED),
            lambda: store.leases.renew(leader.lease, ttl_s=10.0, now=NOW),
        ):
            with pytest.raises(ForeignStore, match=r"was moved to .* start this program again") as refused:
                write()
            assert copied.place in str(refused.value)
        assert [job.submission_id for job in store.jobs.list(name="late")] == []
    with pytest.raises(ForeignStore, match="was moved to"):
        open_at(source)
    with pytest.raises(ForeignStore, match="was moved to"):
        move(source, target, progress=quiet)
    (check, *_) = examine(source).checks
    assert check.verdict is Verdict.PROBLEM
    assert copied.place in check.says
    assert examine(target).problems == 0

    with opened(target) as again:
        assert again.store_id == store.store_id
        assert content(again) == before
        assert_goes_on(again, newest_seq=seq, newest_event=event)


def test_a_move_that_fails_leaves_both_as_they_were(source: StorePlace, target: StorePlace) -> None:
    with opened(source) as store:
        fill(store)
        before = content(store)

        def fail(done: int, total: int) -> None:
            if done > total / 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            move(source, target, progress=fail)
        with pytest.raises(StoreError, match="there is no job store"):
            examine(target)
        assert content(store) == before
        store.jobs.add([("goes-on", a_spec())], now=NOW)
    move(source, target, progress=quiet)
    with opened(target) as again:
        assert again.jobs.get("goes-on")


def test_nobody_writes_while_a_store_is_moved(new_place: NewPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray_multicluster_scheduler.store.sqlite.database.BUSY_TIMEOUT_S", 0)
    source, target = new_place("sqlite"), new_place("sqlite")
    with opened(source) as store, contextlib.closing(SqliteDatabase(source.directory / "jobs.db")) as other:
        fill(store)
        refused = []

        def write(_done: int, _total: int) -> None:
            with pytest.raises(StoreError, match="another process kept it locked"), other.write():
                pass
            refused.append(1)

        move(source, target, progress=write)
    assert refused


def test_a_store_is_not_moved_to_where_it_is(source: StorePlace) -> None:
    with opened(source) as store:
        store.jobs.add([("job", a_spec())], now=NOW)
        with pytest.raises(InvalidRequest, match="already; name another place"):
            move(source, source, progress=quiet)
        store.jobs.add([("next", a_spec())], now=NOW)


def test_a_check_tells_what_is_there_and_makes_nothing(source: StorePlace) -> None:
    with pytest.raises(StoreError, match="there is no job store"):
        examine(source)
    with pytest.raises(StoreError, match="there is no job store"):
        examine(source)  # the first one has not made it
    with opened(source) as store:
        fill(store)
        report = examine(source)
    assert [check.verdict for check in report.checks] == [Verdict.OK] * 3
    assert (report.store_id, report.problems) == (store.store_id, 0)
    assert report.jobs["SUCCEEDED"] == 2
    assert report.bytes is not None
    assert report.bytes > 0


def test_a_check_finds_rows_that_do_not_fit_together(source: StorePlace) -> None:
    with opened(source) as store:
        fill(store)
        with store._database.write() as tx:
            tx.execute(delete(attempts).where(attempts.c.submission_id == "is-RUNNING"))
            tx.execute(update(jobs).where(jobs.c.submission_id == "is-FAILED").values(ended_at=None))
            tx.execute(update(packages).values(size=1))
            tx.execute(update(dependencies).values(needs="is-SUCCEEDED"))
            tx.execute(update(jobs).where(jobs.c.submission_id == "waits-too").values(head="nobody"))
    report = examine(source)
    said = "\n".join(f"{check.says} {check.advice}" for check in report.checks)
    assert report.problems == 5
    assert "that is listed itself: not so for 1 (waits-too)" in said
    assert "every job on a cluster has an attempt there" in said
    assert "not so for 1 (is-RUNNING)" in said
    assert "would wait for ever" in said
    assert "every package has all its bytes" in said
    assert all(check.advice for check in report.checks if check.verdict is Verdict.PROBLEM)


def test_a_check_finds_damage_in_a_file(new_place: NewPlace) -> None:
    source = new_place("sqlite")
    with opened(source) as store:
        for number in range(200):
            store.jobs.add([(f"job-{number}", a_spec(entrypoint="x" * 500))], now=NOW)
    database = source.directory / "jobs.db"
    size = database.stat().st_size
    with database.open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\xff" * (size // 4))
    report = examine(source)
    assert report.problems
    assert "restore the last backup" in " ".join(check.advice for check in report.checks)
