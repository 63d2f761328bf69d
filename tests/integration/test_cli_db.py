"""`raymc db`: what is said, the exit codes, and that no mistake shows a traceback or a password."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.support.builders import NOW, a_spec
from tests.support.job_commands import Commands, raymc

__all__ = ["raymc"]


def with_a_job(raymc: Commands) -> None:
    """Leave one job that waits, and nobody who schedules."""
    raymc.stop_leading()
    with raymc.scheduler() as scheduler:
        scheduler.store.jobs.add([("job", a_spec())], now=NOW)


def test_without_a_store_nothing_is_made(raymc: Commands, tmp_path: Path) -> None:
    said = raymc.refused("db", "check", "--store", str(tmp_path / "none"))
    assert "there is no job store" in said
    assert "there is no job store" in raymc.refused(
        "db", "backup", str(tmp_path / "b.db"), "--store", str(tmp_path / "none")
    )
    assert not (tmp_path / "none").exists()
    assert not (tmp_path / "b.db").exists()


def test_a_check_says_where_the_store_is_and_what_is_in_it(raymc: Commands) -> None:
    with_a_job(raymc)
    done = raymc.run("db", "check")
    assert done.code == 0, done.err
    for words in ("r0001_pre", "leader  nobody", "1 QUEUED", "MiB", "fit together"):
        assert words in done.out
    report = json.loads(raymc.run("db", "check", "--json").out)
    assert (report["problems"], report["jobs"]) == (0, {"QUEUED": 1})
    assert report["place"] in done.out


def test_a_problem_is_an_exit_code_and_says_what_to_do(raymc: Commands) -> None:
    with_a_job(raymc)
    place = json.loads(raymc.run("db", "check", "--json").out)["place"]
    with closing(sqlite3.connect(Path(place) / "jobs.db", isolation_level=None)) as hurt:
        hurt.execute("DELETE FROM events")
    done = raymc.run("db", "check")
    assert done.code == 1
    assert "every job has an event: not so for 1 (job)" in done.out
    assert "restore a backup" in done.out


def test_backup_restore_and_move_one_after_the_other(raymc: Commands, tmp_path: Path) -> None:
    with_a_job(raymc)
    file, other, third = str(tmp_path / "backup.db"), str(tmp_path / "other"), str(tmp_path / "third")
    done = raymc.run("db", "backup", file)
    assert done.code == 0, done.err
    assert "1 jobs (1 QUEUED)" in done.out
    assert "exists; name another file, or replace it with --force" in raymc.refused("db", "backup", file)
    assert raymc.run("db", "backup", file, "--force").code == 0

    assert "already. Name another place" in raymc.refused("db", "restore", file)
    done = raymc.run("db", "restore", file, "--store", other)
    assert done.code == 0, done.err
    assert "may run, or have run" in done.err

    assert "say --yes where nobody can be asked" in raymc.refused(
        "db", "move", "--store", other, "--to", third
    )
    assert raymc.run("db", "check", "--store", other).code == 0
    said = raymc.refused("db", "copy", "--store", other, "--to", third)
    assert "called `raymc db move`" in said
    assert "`raymc db backup FILE` makes a copy" in said
    done = raymc.run("db", "move", "--store", other, "--to", third, "--yes")
    assert done.code == 0, done.err
    assert f"Name {third} as `store`" in done.err
    done = raymc.run("db", "check", "--store", other)
    assert done.code == 1
    assert f"moved to {third}" in done.out
    raymc.configure(store=other)
    assert f"was moved to {third}" in raymc.refused("submit", "--no-wait", "--", "true")
    raymc.configure(store=third)
    assert [job["submission_id"] for job in raymc.json("jobs")] == ["job"]


def test_a_password_is_never_shown(raymc: Commands, tmp_path: Path) -> None:
    for address in ("postgresql://ann:s3cret@127.0.0.1/x", "postgresql://ann@127.0.0.1:1/x?password=s3cret"):
        for words in (
            ["check", "--store", address],
            ["backup", str(tmp_path / "b.db"), "--store", address],
            ["restore", str(tmp_path / "b.db"), "--store", address],
            ["move", "--yes", "--to", address],
        ):
            done = raymc.run("db", *words)
            assert done.code == 2
            assert "s3cret" not in done.out + done.err
            assert "Traceback" not in done.err


def test_the_client_of_a_server_is_sent_to_the_server(raymc: Commands) -> None:
    raymc.configure(address="http://127.0.0.1:1")
    assert "run this command where the server runs" in raymc.refused("db", "check")
