"""The job commands in a real terminal: moving lines, bars, and what Ctrl-C does."""

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.builders import a_spec
from tests.support.raymc import Done, environment, raymc, write_config
from tests.support.system import FAST, fake
from tests.support.terminal import CTRL_C, typing_into
from tests.support.waiting import eventually

from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.testing import FakeRay, ShellRunner


class World:
    """A fake cluster of 4 CPUs, and the commands on it in processes of their own."""

    def __init__(self, folder: Path, ray: FakeRay) -> None:
        self.ray = ray
        self.config = write_config(folder, [ray.spec()], **FAST)
        self.environ = environment(
            RAY_MULTICLUSTER_HOME=str(folder / "home"),
            RAY_MULTICLUSTER_USER="ann",
            RAY_MULTICLUSTER_CONFIG=str(self.config),
        )

    def running(self) -> list[str]:
        """Return what really runs now, whatever the store says."""
        return [run.submission_id for run in self.ray.runs if run.end is None]

    async def raymc(self, *arguments: str) -> Done:
        return await raymc(*arguments, environ=self.environ)

    async def states(self, *filters: str) -> set[str]:
        done = await self.raymc("jobs", "--limit", "0", "--json", *filters)
        return {row["state"] for row in json.loads(done.out)}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with fake("centos", 4) as ray:
        yield World(tmp_path, ray)


async def test_the_log_streams_above_a_line_about_the_state(world: World) -> None:
    command = ("submit", "--submission-id", "one", "--", "echo first; sleep 2; echo second")
    async with typing_into(*command, environ=world.environ) as person:
        await person.until("first")
        await person.until("RUNNING on centos for")
        await person.until("second")
        assert await person.end() == 0
        assert "one SUCCEEDED on centos" in person.seen


@pytest.mark.parametrize(("answer", "code"), [("\r", 0), ("n\r", 2)])
async def test_a_person_is_asked_whether_the_directory_of_a_script_goes_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work.sh").write_text("echo done")
    async with fake("centos", 4, runner=ShellRunner()) as ray:
        world = World(tmp_path, ray)
        async with typing_into("submit", "--", "sh", "work.sh", environ=world.environ) as person:
            await person.until("Send this directory along (--working-dir .)? [Y/n]")
            person.type(answer)
            assert await person.end() == code, person.seen
        assert await world.states() == ({"SUCCEEDED"} if code == 0 else set())


async def test_ctrl_c_stops_the_job_and_ends_with_130(world: World) -> None:
    async with typing_into(
        "submit", "--submission-id", "one", "--", "echo hi; sleep 600", environ=world.environ
    ) as person:
        await person.until("hi\r\n")
        person.type(CTRL_C)
        assert await person.end() == 130, person.seen
        assert "Interrupted: stopping one" in person.seen
        assert "1 STOPPED" in person.seen
        assert "Traceback" not in person.seen
    assert world.running() == []
    assert await world.states() == {"STOPPED"}


async def test_ctrl_c_stops_the_rest_of_an_array(world: World) -> None:
    # The first ones end at once, the others would run for ever.
    command = ("submit", "--array", "0-59", "--submission-id", "arr", "--", "sleep 0.{i}; sleep {i}0")
    async with typing_into(*command, environ=world.environ) as person:
        await person.until("SUCCEEDED")
        person.type(CTRL_C)
        assert await person.end() == 130, person.seen
        assert "Interrupted: stopping" in person.seen
    assert world.running() == []
    assert await world.states("--group", "arr") == {"SUCCEEDED", "STOPPED"}


async def test_an_array_has_one_bar(world: World) -> None:
    command = ("submit", "--array", "0-9", "--", "echo {i}; sleep 0.2")
    async with typing_into(*command, environ=world.environ) as person:
        await person.until("/10")
        assert await person.end() == 0
        assert "10 jobs in" in person.seen


async def test_ctrl_c_while_waiting_leaves_the_jobs_alone(world: World) -> None:
    assert (await world.raymc("submit", "--no-wait", "--submission-id", "one", "--", "sleep 600")).code == 0
    async with typing_into("wait", "one", environ=world.environ) as person:
        await person.until("RUNNING")
        person.type(CTRL_C)
        assert await person.end() == 130, person.seen
        assert "the jobs go on" in person.seen
    async with typing_into("logs", "-f", "one", environ=world.environ) as person:
        await person.until("Running entrypoint")
        person.type(CTRL_C)
        assert await person.end() == 130, person.seen
        assert "one goes on." in person.seen
    assert world.running() == ["one"]


async def test_a_stop_that_is_interrupted_says_what_goes_on(world: World) -> None:
    assert (await world.raymc("submit", "--no-wait", "--submission-id", "one", "--", "sleep 600")).code == 0
    await eventually(lambda: world.running() == ["one"])
    world.ray.hang()
    async with typing_into("stop", "one", environ=world.environ) as person:
        await person.until("0/1")
        person.type(CTRL_C)
        assert await person.end() == 130, person.seen
        said = " ".join(person.seen.split())
        assert "Interrupted: the request to stop one is recorded. Process " in said
        assert " carries it out." in said
    assert " (stopping) on centos" in (await world.raymc("status", "one")).out
    world.ray.resume()
    assert (await world.raymc("wait", "one")).code == 1
    assert await world.states() == {"STOPPED"}


async def test_delete_asks_before_more_goes_than_was_named(world: World) -> None:
    assert (
        await world.raymc("submit", "--array", "0-1", "--submission-id", "grp", "--", "echo {i}")
    ).code == 0
    for answer, code, left in (("n\n", 1, {"SUCCEEDED"}), ("y\n", 0, set())):
        async with typing_into("delete", "grp", environ=world.environ) as person:
            await person.until("Delete 2 jobs (2 SUCCEEDED) with their logs")
            person.type(answer)
            assert await person.end() == code
        assert await world.states() == left


async def test_stop_all_mine_asks_first_and_no_means_no(world: World) -> None:
    assert (await world.raymc("submit", "--no-wait", "--", "sleep 600")).code == 0
    async with typing_into("stop", "--all-mine", environ=world.environ) as person:
        await person.until("Stop 1 job (1 ")
        person.type("n\n")
        assert await person.end() == 1
    await eventually(lambda: len(world.running()) == 1)
    async with typing_into("stop", "--all-mine", environ=world.environ) as person:
        await person.until("Stop 1 job")
        person.type("y\n")
        assert await person.end() == 0
        assert ": STOPPED" in person.seen
    assert world.running() == []


async def test_jobs_watch_follows_a_change_and_ends_with_ctrl_c(world: World) -> None:
    async with typing_into("jobs", "--watch", environ=world.environ) as person:
        await person.until("No job was submitted yet.")
        await world.raymc("submit", "--submission-id", "one", "--", "echo")
        await person.until("one")
        await person.until("SUCCEEDED")
        person.type(CTRL_C)
        assert await person.end() == 0
        assert "Traceback" not in person.seen


async def test_watching_with_json_writes_a_line_per_change(world: World) -> None:
    async with typing_into("jobs", "--watch", "--json", environ=world.environ, columns=500) as person:
        await person.until("[]")
        await world.raymc("submit", "--submission-id", "one", "--", "echo")
        await person.until('"SUCCEEDED"')
        await person.until("}]\r\n")
        person.type(CTRL_C)
        assert await person.end() == 0
    last = [line for line in person.seen.splitlines() if line.startswith("[{")][-1]
    assert json.loads(last)[0]["submission_id"] == "one"


@pytest.mark.parametrize("key", ["q", CTRL_C])
async def test_top_shows_clusters_and_jobs_until_a_key(world: World, key: str) -> None:
    async with typing_into("top", environ=world.environ, columns=140) as person:
        await person.until("no scheduler runs")  # nothing is to be done yet
        await person.until("0/4")
        await person.until("No job was submitted yet.")
        await world.raymc("submit", "--submission-id", "one", "--", "echo")
        await person.until("scheduler: process ")
        await person.until("SUCCEEDED")
        person.type(key)
        assert await person.end() == 0
        assert "Traceback" not in person.seen


@pytest.mark.parametrize("command", [("top",), ("jobs", "--watch"), ("jobs", "--watch", "--json")])
async def test_a_screen_that_stays_open_schedules_where_nobody_does(
    world: World, command: tuple[str, ...]
) -> None:
    reader = EmbeddedScheduler.open(world.config, environ=world.environ)
    reader.store.jobs.add([("one", a_spec(entrypoint="echo"))], now=time.time())
    async with typing_into(*command, environ=world.environ, columns=140):
        await eventually(lambda: reader.store.jobs.get("one").state is JobState.SUCCEEDED)
    reader.stop()


async def test_wait_says_why_a_job_waits(world: World) -> None:
    await world.raymc("submit", "--no-wait", "--cpus", "4", "--", "sleep 600")
    await world.raymc("submit", "--no-wait", "--submission-id", "two", "--", "echo")
    async with typing_into("wait", "two", environ=world.environ, columns=140) as person:
        await person.until("1 QUEUED; centos: ")
        person.type(CTRL_C)
        assert await person.end() == 130
