"""Two versions beside each other: the older one writes no more, the newer one goes on, nothing is lost."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import newer_version
from tests.support.builders import NOW, a_spec
from tests.support.postgres import PostgresServer, a_postgres
from tests.support.raymc import write_config
from tests.support.system import FAST, System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.config.store_place import STORE_VARIABLE
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.errors import SchedulerError, StoreError
from ray_multicluster_scheduler.model.states import JobState

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with a_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "state")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url("rolling")


class OnStore(System):
    """A system whose jobs are kept in a named place."""

    store: str

    def _environ(self) -> dict[str, str]:
        return {**super()._environ(), STORE_VARIABLE: self.store}


def has_given_up(scheduler: EmbeddedScheduler) -> bool:
    """Tell whether the engine has ended because the store is of a newer version."""
    try:
        scheduler.ensure_scheduled()
    except SchedulerError as problem:
        return "newer version of this package" in str(problem)
    return False


@pytest.mark.slow
async def test_the_older_scheduler_gives_up_and_the_newer_one_goes_on(tmp_path: Path, store: str) -> None:
    system = OnStore(tmp_path, fake("a", cpus=4), fake("b", cpus=4))
    system.store = store
    async with system:
        running = [await system.submit("sleep 3", submission_id=f"long-{n}") for n in range(6)]
        waiting = [await system.submit("sleep 0.2", submission_id=f"short-{n}") for n in range(6)]
        await system.until(running[0], JobState.RUNNING)
        older = system.scheduler

        config = write_config(tmp_path, [ray.spec() for ray in system.ray.values()], **FAST)
        environ = {**os.environ, **system._environ(), "PYTHONPATH": str(ROOT)}
        newer = await asyncio.create_subprocess_exec(
            sys.executable, newer_version.__file__, tmp_path, config, env=environ, stdout=PIPE, stderr=PIPE
        )
        await eventually(lambda: has_given_up(older))
        with pytest.raises(StoreError, match=r"newer version of this package .*nothing was written"):
            older.store.jobs.add([("refused", a_spec())], now=NOW)
        out, err = await newer.communicate()

        assert newer.returncode == 0, err.decode()
        states = json.loads(out)
        assert states == dict.fromkeys([*running, *waiting, "of-the-newer"], "SUCCEEDED")
        for submission_id in states:
            assert len(system.runs(submission_id)) == 1, submission_id
        # The older one can still read, past the column that it does not know.
        assert {job.state for job in older.store.jobs.list()} == {JobState.SUCCEEDED}
