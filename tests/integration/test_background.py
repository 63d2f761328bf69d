"""The background scheduler: started by whoever submits, there while there is work, and only one of it."""

import asyncio
import json
import os
import random
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.integration.programs import run_program
from tests.support.builders import a_spec
from tests.support.raymc import COMMAND, Done, environment, raymc, write_config
from tests.support.system import FAST, fake
from tests.support.waiting import PATIENCE_S, eventually

from ray_multicluster_scheduler import background
from ray_multicluster_scheduler.background import ControlFiles, Message, Record
from ray_multicluster_scheduler.config import load_config, parse_config
from ray_multicluster_scheduler.config.store_place import store_place
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.store import open_at
from ray_multicluster_scheduler.testing import FakeRay
from ray_multicluster_scheduler.version import VERSION

SUBMITS = """
from ray_multicluster_scheduler import submit_job
print(submit_job({command!r}, **{options!r}) + "\\n", end="")  # one write: fifty share the pipe
"""


#: Fifty programs that begin at the same moment: what each would import is imported before they part.
FIFTY = (
    """
import os, sys
import ray_multicluster_scheduler.client.job_functions, ray_multicluster_scheduler.embedded
from ray_multicluster_scheduler.clock import jitter

for _ in range(50):
    if os.fork() == 0:
        jitter.__self__.seed()  # as in a program that was started for itself
        break
else:
    sys.exit(max(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(50)))
"""
    + SUBMITS
)


class World:
    """Fake clusters, programs in processes of their own, and the store that they share."""

    def __init__(self, folder: Path, *fakes: FakeRay) -> None:
        self.folder = folder
        self.fakes = {ray.name: ray for ray in fakes}
        self.environ = {"RAY_MULTICLUSTER_HOME": str(folder / "home")}
        self.configure()
        self.files = ControlFiles(store_place(load_config(self.config), self.environ).directory)

    def configure(self, *only: str, **settings: Any) -> None:
        specs = [ray.spec() for name, ray in self.fakes.items() if not only or name in only]
        tokens = {name: value for ray in self.fakes.values() for name, value in ray.environ.items()}
        self.environ = {**self.environ, **tokens}
        self.config = write_config(self.folder, specs, **{**FAST, "linger_s": 1.0, **settings})
        self.environ["RAY_MULTICLUSTER_CONFIG"] = str(self.config)

    async def submit(self, command: str, **options: Any) -> str:
        """Run a program that submits a job and ends; return the job's id."""
        done = await run_program(SUBMITS.format(command=command, options=options), self.environ)
        assert done.code == 0, done.err
        return done.out.strip()

    async def raymc(self, *arguments: str) -> Done:
        return await raymc(*arguments, environ=environment(**self.environ))

    def states(self) -> dict[str, JobState]:
        with closing(open_at(store_place(load_config(self.config), self.environ))) as store:
            return {job.submission_id: job.state for job in store.jobs.list(limit=None)}

    async def ended(self, *ids: str) -> dict[str, JobState]:
        """Wait until jobs have ended, by looking at the store only: nothing is started by that."""
        states: dict[str, JobState] = {}

        def are_over() -> bool:
            states.update(self.states())
            return all(states[each] in FINAL for each in ids or states)

        await eventually(are_over)
        return states

    def record(self) -> Record:
        record = self.files.record()
        assert record is not None
        return record

    async def until_gone(self) -> None:
        await eventually(lambda: not self.files.is_running())


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with fake("centos", 4) as centos, fake("mac", 2) as mac:
        yield World(tmp_path, centos, mac)


async def test_a_program_that_only_submits_has_its_job_run(world: World) -> None:
    done = await run_program(SUBMITS.format(command="echo alone", options={}), world.environ)
    (job_id,) = done.out.split()
    assert done.err.count("a scheduler for this store runs in the background, pid ") == 1
    assert "`raymc scheduler stop`" in done.err
    assert (await world.ended(job_id))[job_id] is JobState.SUCCEEDED
    await world.until_gone()  # linger_s after the last job


async def test_what_nobody_waits_for_is_retried_stopped_in_time_and_chained(world: World) -> None:
    await world.submit("exit 3", submission_id="tried", max_retries=2)
    await world.submit("sleep 600", submission_id="late", timeout_s=1)
    await world.submit("sleep 1", submission_id="first")
    await world.submit("echo", submission_id="second", depends_on=["first"])
    await world.submit("echo", submission_id="never", resource_requirements={"CPU": 4}, queue_timeout_s=1)
    states = await world.ended("tried", "late", "first", "second")
    assert (states["tried"], states["late"], states["second"]) == (
        JobState.FAILED,
        JobState.FAILED,
        JobState.SUCCEEDED,
    )
    runs = [run for ray in world.fakes.values() for run in ray.runs]
    assert sum(run.submission_id.startswith("tried") for run in runs) == 3
    assert all(run.end is not None for run in runs if run.submission_id.startswith("late"))
    assert (await world.ended("never"))["never"] in FINAL


async def test_a_job_whose_cluster_dies_is_started_elsewhere(world: World) -> None:
    await world.submit("sleep 3", submission_id="job", preferred_cluster="mac")
    await eventually(lambda: world.fakes["mac"].runs)
    await world.fakes["mac"].kill()
    await world.fakes["mac"].restart()  # with a new session: what ran there is gone
    assert (await world.ended("job"))["job"] is JobState.SUCCEEDED


async def test_fifty_programs_at_once_start_one_scheduler(world: World) -> None:
    world.configure(linger_s=60.0)
    done = await run_program(FIFTY.format(command="echo", options={}), world.environ)
    assert done.code == 0, done.err
    assert done.err.count("runs in the background") == 1
    states = await world.ended()
    assert sorted(states) == sorted(done.out.split())
    assert len(states) == 50
    assert set(states.values()) == {JobState.SUCCEEDED}
    assert world.files.log.read_text().count(" INFO leading as ") == 1


async def test_killed_at_random_nothing_is_lost_and_nothing_runs_twice(world: World) -> None:
    for ray in world.fakes.values():
        ray.cpus = 64.0
    many = "[submit_job('echo', submission_id=f'{batch}-{n}') for n in range(50)]"
    batches = [
        f"from ray_multicluster_scheduler import submit_job\nbatch = 'b{number}'\n{many}"
        for number in range(5)
    ]
    chance = random.Random(29)
    for batch in batches:
        done = await run_program(batch, world.environ)
        assert done.code == 0, done.err
        await asyncio.sleep(chance.uniform(0.0, 0.3))
        if (record := world.files.record()) is not None:
            os.kill(record.pid, signal.SIGKILL)
            await eventually(lambda: not world.files.is_running())
    assert (await world.raymc("jobs")).code == 0  # the next use of the store
    states = await world.ended()
    assert len(states) == 250
    assert set(states.values()) == {JobState.SUCCEEDED}
    ran = [run.submission_id for ray in world.fakes.values() for run in ray.runs]
    assert len(ran) == len(set(ran)) == 250
    await world.until_gone()


async def test_who_waits_starts_it_again_when_it_was_killed(world: World) -> None:
    await world.submit("sleep 15", submission_id="job")  # longer than a busy machine stands still
    waiting = asyncio.create_task(world.raymc("wait", "job"))
    await eventually(lambda: [run for ray in world.fakes.values() for run in ray.runs])
    os.kill(world.record().pid, signal.SIGKILL)
    done = await asyncio.wait_for(waiting, PATIENCE_S)
    assert done.code == 0, done.err
    assert "runs in the background" in done.err


async def test_its_end_is_not_the_end_of_a_job_that_comes_meanwhile(world: World) -> None:
    world.configure(linger_s=0.0)
    for number in range(8):  # each comes about when the scheduler of the one before ends
        job_id = await world.submit("echo", submission_id=f"job-{number}")
        assert (await world.ended(job_id))[job_id] is JobState.SUCCEEDED


async def test_stop_of_the_handle_leaves_it_at_work(world: World) -> None:
    program = """
        from ray_multicluster_scheduler import initialize_scheduler_environment, submit_job
        handle = initialize_scheduler_environment()
        submit_job("sleep 1", submission_id="job")
        handle.stop()
    """
    assert (await run_program(program, world.environ)).code == 0
    assert (await world.ended("job"))["job"] is JobState.SUCCEEDED


async def test_status_stop_and_logs_tell_of_it(world: World) -> None:
    nobody = await world.raymc("scheduler", "status")
    assert (nobody.code, nobody.out.split(";")[0]) == (1, "No scheduler runs for this store")
    await world.submit("sleep 600", submission_id="job")
    record = world.record()
    status = await world.raymc("scheduler", "status")
    assert status.code == 0
    assert status.out.startswith(f"Process {record.pid} on ")
    assert str(world.config) in status.out
    told = json.loads((await world.raymc("scheduler", "status", "--json")).out)
    assert (told["pid"], told["kind"], told["version"]) == (record.pid, "background", VERSION)
    assert f"scheduling {world.config}" in (await world.raymc("scheduler", "logs")).out
    stopped = await world.raymc("scheduler", "stop")
    assert stopped.out == f"Ended: process {record.pid}.\n"
    assert "1 job is open" in stopped.err
    assert (await world.raymc("scheduler", "stop")).out == "No scheduler runs in the background.\n"


async def test_another_content_of_its_file_is_taken_over_and_a_wrong_one_is_not(world: World) -> None:
    world.configure("centos", linger_s=60.0)
    await world.submit("sleep 600", submission_id="first", resource_requirements={"CPU": 4})
    pid = world.record().pid
    good = world.config.read_text()
    world.config.write_text("clusters: {")
    await eventually(lambda: "clusters.yaml was not taken over" in world.files.log.read_text())
    world.config.write_text(good)
    world.configure("centos", "mac", linger_s=60.0)
    second = await world.submit("echo", submission_id="second")
    assert (await world.ended(second))["second"] is JobState.SUCCEEDED
    assert world.record().pid == pid
    assert world.fakes["mac"].runs


async def test_a_newer_token_reaches_it_and_no_other_variable_does(tmp_path: Path) -> None:
    async with fake("centos", 4, token="right") as centos:
        world = World(tmp_path, centos)
        (variable,) = centos.environ
        world.configure(linger_s=60.0)
        world.environ |= {variable: "wrong", "MY_SECRET": "hidden"}
        await world.submit("echo", submission_id="job")
        pid = world.record().pid
        assert "MY_SECRET" not in of_process(pid, "environ").read_text()
        explained = await world.raymc("explain", "job")
        assert variable in explained.out
        world.files.send(Message(variable="PATH", value="/nowhere"))
        world.environ[variable] = "right"
        await world.submit("echo", submission_id="next")
        states = await world.ended("job", "next")
        assert set(states.values()) == {JobState.SUCCEEDED}
        assert world.record().pid == pid
        kept = [
            path.read_text(errors="replace")
            for path in world.files.directory.glob("scheduler.*")
            if path.suffix != ".pipe"
        ]
        assert not any("right" in text or "hidden" in text for text in kept)


async def test_a_scheduler_of_an_older_version_is_replaced(world: World) -> None:
    world.configure(linger_s=60.0)
    await world.submit("sleep 600", submission_id="job")
    old = world.record()
    world.files.write_record(Record(**{**_fields(old), "version": "0.1.9"}))
    done = await world.raymc("submit", "--no-wait", "--", "echo")
    assert "is of version 0.1.9" in done.err
    assert world.record().pid != old.pid
    assert world.record().version == VERSION


def of_process(pid: int, name: str) -> Path:
    return Path(f"/proc/{pid}/{name}")


def _fields(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in Record.__dataclass_fields__}


async def test_what_keeps_it_from_starting_is_said_and_the_job_is_kept(world: World) -> None:
    broken = world.folder / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import sys\nif 'scheduler_process' in ' '.join(sys.orig_argv): raise SystemExit('no more memory')\n"
    )
    world.environ["PYTHONPATH"] = str(broken)
    done = await world.raymc("submit", "--no-wait", "--submission-id", "job", "--", "echo")
    assert (done.code, done.out) == (1, "job\n")
    assert "no scheduler could be started in the background: SystemExit: no more memory" in done.err
    assert world.states() == {"job": JobState.QUEUED}
    waits = await world.raymc("wait", "job")
    assert waits.code == 2
    assert "Traceback" not in waits.err
    del world.environ["PYTHONPATH"]
    assert (await world.raymc("wait", "job")).code == 0


async def test_inside_a_job_none_is_started(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr(background, "start_scheduler", lambda *given: started.append(given))
    config = load_config(world.config)
    place = store_place(config, world.environ)
    inside = {**world.environ, "RAY_MULTICLUSTER_SUBMISSION_ID": "outer"}
    with closing(open_at(place)) as store:
        store.jobs.add([("job", a_spec())], now=time.time())
        for environ in (inside, {**world.environ, "RAY_MULTICLUSTER_BACKGROUND": "0"}):
            background.BackgroundScheduler(config, place.directory, environ).ensure(
                store, now=time.time(), at_once=True
            )
        assert not started


async def test_closing_the_pipe_of_its_starter_does_not_wait_for_it(world: World) -> None:
    """`ssh host raymc submit` ends when the command ends: the scheduler holds none of its files."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "submit", "--no-wait", "--", "sleep 600",
        env=environment(**world.environ),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    await asyncio.wait_for(process.communicate(), PATIENCE_S)  # returns at the end of both pipes
    pid = world.record().pid
    files = {str(of_process(pid, f"fd/{number}").readlink()) for number in (0, 1, 2)}
    assert files == {"/dev/null", str(world.files.log)}
    assert os.getsid(pid) != os.getsid(0)


async def test_a_foreground_scheduler_takes_over_from_the_one_in_the_background(world: World) -> None:
    world.configure(linger_s=60.0)
    await world.submit("sleep 600", submission_id="job")
    behind = world.record().pid
    running = await asyncio.create_subprocess_exec(
        *COMMAND, "scheduler", "run", env=environment(**world.environ), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await eventually(lambda: _is_led_by(world, running.pid))
        assert behind != running.pid
        refused = await world.raymc("scheduler", "stop")
        assert refused.code == 2
        assert "end it there" in refused.err
    finally:
        running.send_signal(signal.SIGTERM)
        assert await running.wait() == 0


def _is_led_by(world: World, pid: int) -> bool:
    record: Callable[[], Record | None] = world.files.record
    found = record()
    return found is not None and found.pid == pid


def test_a_program_that_stops_does_not_wait_for_the_thread_that_looks_for_a_scheduler(
    world_alone: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, look = threading.Event(), world_alone.ensure_scheduled

    def slowly(*, at_once: bool = False) -> None:
        looks.set()
        time.sleep(0.5)  # the program is being stopped meanwhile
        look(at_once=at_once)

    monkeypatch.setattr(world_alone, "ensure_scheduled", slowly)
    with world_alone.parts.hub.subscribe(None):
        assert looks.wait(PATIENCE_S)
        stopping = threading.Thread(target=world_alone.stop, daemon=True)
        stopping.start()
        stopping.join(PATIENCE_S)
        assert not stopping.is_alive()


@pytest.fixture
def world_alone(tmp_path: Path) -> Scheduler:
    """A program's scheduler, with a cluster that nobody asks."""
    config = parse_config("clusters: {a: {head_address: '127.0.0.1:1'}}", tmp_path / "clusters.yaml")
    return Scheduler(config, directory=tmp_path / "state", environ={"RAY_MULTICLUSTER_BACKGROUND": "0"})
