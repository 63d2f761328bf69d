"""Signals end a command cleanly at any moment: no traceback, the shell's exit code, the job goes on."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.raymc import COMMAND, Done, environment, raymc, write_config
from tests.support.system import FAST, fake
from tests.support.waiting import PATIENCE_S, eventually

from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.testing import FakeRay


class World:
    """A fake cluster of one CPU, commands in processes of their own, and the store that they share."""

    def __init__(self, folder: Path, ray: FakeRay) -> None:
        self.ray = ray
        self.config = write_config(folder, [ray.spec()], **FAST)
        self.environ = environment(
            RAY_MULTICLUSTER_HOME=str(folder / "home"), RAY_MULTICLUSTER_CONFIG=str(self.config)
        )
        self.scheduler = EmbeddedScheduler.open(self.config, environ=self.environ)

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *COMMAND, *arguments, env=self.environ, stdout=pipe, stderr=pipe
        )

    async def run(self, *arguments: str) -> Done:
        return await raymc(*arguments, environ=self.environ)

    def is_running(self) -> bool:
        return [run.end for run in self.ray.runs] == [None]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with fake("centos", 1) as ray:
        world = World(tmp_path, ray)
        yield world
        world.scheduler.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_command_that_is_terminated_leaves_the_scheduler_at_work(
    world: World, number: signal.Signals
) -> None:
    await world.run("submit", "--no-wait", "--submission-id", "long", "--", "sleep 600")
    waiting = await world.start("wait", "long")
    assert waiting.stderr is not None
    await waiting.stderr.readuntil(b"0/1 jobs")
    waiting.send_signal(number)
    _, err = await waiting.communicate()
    assert waiting.returncode == 128 + number
    assert b"Traceback" not in err
    after = await world.run("submit", "--no-wait", "--submission-id", "next", "--", "sleep 600")
    assert "schedules." in after.err
    assert f"process {waiting.pid} " not in after.err


async def test_a_job_goes_on_when_the_command_that_submitted_it_is_terminated(world: World) -> None:
    submitting = await world.start("submit", "--submission-id", "long", "--", "sleep 600")
    await eventually(world.is_running)
    submitting.send_signal(signal.SIGTERM)
    _, err = await submitting.communicate()
    assert submitting.returncode == 143
    assert b"long will go on" in err
    assert world.is_running()
    assert not world.scheduler.store.jobs.get("long").final


async def test_a_signal_that_was_to_be_ignored_is_ignored(world: World) -> None:
    process = await asyncio.create_subprocess_exec(
        "nohup", *COMMAND, "submit", "--submission-id", "short", "--", "sleep 3", env=world.environ
    )
    await eventually(world.is_running)
    process.send_signal(signal.SIGHUP)
    assert await process.wait() == 0
    assert world.scheduler.store.jobs.get("short").state is JobState.SUCCEEDED


#: Stops the program in the middle of the import of a module, as Ctrl-C might.
INTERRUPTED_IMPORT = """
import os, signal, sys

class AtThisImport:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, AtThisImport())
sys.argv = ["raymc", *{arguments!r}]
from ray_multicluster_scheduler.cli.main import main
main()
"""


@pytest.mark.parametrize(
    "module",
    [
        "ray_multicluster_scheduler.cli.console",
        "ray_multicluster_scheduler.cli.registry",
        "typer",
        "ray_multicluster_scheduler.cli.commands.submit",
        "rich.console",
        "ray_multicluster_scheduler.runtime",
        "sqlalchemy",
    ],
)
def test_ctrl_c_during_an_import_ends_without_a_traceback(module: str, tmp_path: Path) -> None:
    config = tmp_path / "clusters.yaml"
    config.write_text("clusters: {mac: {head_address: '127.0.0.1:1', dashboard: 'http://127.0.0.1:1'}}")
    arguments = ["submit", "--config", str(config), "--", "true"]
    program = INTERRUPTED_IMPORT.format(module=module, arguments=arguments)
    home = {**os.environ, "RAY_MULTICLUSTER_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=home,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
