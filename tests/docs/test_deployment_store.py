"""The page about deployment: its commands about the store are run one after the other, as they are shown."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.builders import NOW, a_spec
from tests.support.job_commands import Commands, raymc
from tests.support.pages import DOCS, blocks, commands
from tests.support.postgres import PostgresServer, a_postgres

__all__ = ["raymc"]

PAGE = DOCS / "deployment.md"
#: What stands on the page for places of the reader's.
DATABASE, DIRECTORY, FILE = (
    "postgresql://raymc@db.example.org/raymc",
    "/var/lib/raymc/restored",
    "raymc-backup.db",
)


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with a_postgres() as server:
        yield server


def test_the_store_is_checked_backed_up_restored_and_moved(
    raymc: Commands, postgres: PostgresServer, tmp_path: Path
) -> None:
    raymc.stop_leading()  # the job is to be the same in all places
    with raymc.scheduler() as scheduler:
        scheduler.store.jobs.add([("job", a_spec())], now=NOW)
        store_id = scheduler.store_id
    shown = [
        command
        for block in blocks("bash", pages=[PAGE])
        for command in commands(block)
        if command.startswith("raymc db ")
    ]
    assert [command.split()[2] for command in shown] == ["check", "backup", "restore", "move", "check"]
    mine = {
        DATABASE: postgres.url(),
        DIRECTORY: str(tmp_path / "restored"),
        FILE: str(tmp_path / "backup.db"),
    }
    for command in shown:
        words = [mine.get(word, word) for word in shlex.split(command)[1:]]
        done = raymc.run(*words, *(["--yes"] if words[1] == "move" else []))  # a person is asked
        assert done.code == 0, (command, done.err)
        assert "job" in done.out
    for place in (postgres.url(), str(tmp_path / "restored")):
        done = raymc.run("db", "check", "--json", "--store", place)
        report = json.loads(done.out)
        assert (report["store_id"], report["jobs"]) == (store_id, {"QUEUED": 1})
    assert raymc.run("db", "check").code == 1  # it was moved
