"""Real clusters for tests of tasks and actors: programs run on them, and their processes are counted."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.builders import a_cluster
from tests.support.processes import specific_servers
from tests.support.waiting import until

import ray_multicluster_scheduler as raymc
from ray_multicluster_scheduler.local import Head, HeadSpec, Sandbox
from ray_multicluster_scheduler.ray_api.http_connection import HttpConnection

#: A loaded machine needs its time.
PATIENCE_S = 240.0
#: What Ray Client waits for a connection that broke, and some time to end the process.
GRACE_S = 30.0 + 40.0
PROGRAMS = Path(__file__).parent / "programs"


@dataclass(kw_only=True)
class World:
    """A sandbox, and a folder in which programs and tests leave notes for each other."""

    sandbox: Sandbox
    folder: Path
    #: The tokens of the clusters that have one, by the variables that the configuration names.
    tokens: Mapping[str, str] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        return self.sandbox.config_path

    def head(self, name: str) -> Head:
        return self.sandbox.heads[name]

    def submit(self, program: str, *arguments: object, cluster: str, config: Path | None = None) -> str:
        """Start a program as a job on a cluster and return its id."""
        words = [PROGRAMS / program, config or self.config, self.folder, *arguments]
        return raymc.submit_job(
            entrypoint="python " + " ".join(map(str, words)),
            # What the programs share comes from here, on other clusters too.
            runtime_env={"working_dir": str(PROGRAMS), "env_vars": dict(self.tokens)},
            # It claims no CPU, so its cluster has room for it even where the last work still shows.
            resource_requirements={"memory": 0.001},
            preferred_cluster=cluster,
        )

    def answer(self, job: str) -> Any:
        """Wait for a job and return the JSON that it printed after `answer:`."""
        raymc.wait_for_all_jobs([job], timeout=PATIENCE_S)
        return _answer(raymc.get_job_info(job)["logs"])

    def run(self, program: str, *arguments: object, cluster: str) -> Any:
        return self.answer(self.submit(program, *arguments, cluster=cluster))

    def outside(self, program: str, *arguments: object, **environ: str) -> subprocess.Popen[str]:
        """Start a program that is no job, as a user on some machine would."""
        clean = {n: v for n, v in os.environ.items() if not n.startswith("RAY_MULTICLUSTER_CLUSTER")}
        # After the programs, what this test itself imports: it may run on sources that are not installed.
        path = os.pathsep.join(filter(None, [str(PROGRAMS), clean.get("PYTHONPATH")]))
        return subprocess.Popen(
            [
                sys.executable,
                str(PROGRAMS / program),
                str(self.config),
                str(self.folder),
                *map(str, arguments),
            ],
            env={**clean, "PYTHONPATH": path, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def sessions(self, name: str) -> list[str]:
        """The Ray Client helper processes that a cluster runs now."""
        return specific_servers(f"--address={self.head(name).gcs_address} ")

    def wait_until_no_session_is_left(self) -> None:
        for name in self.sandbox.heads:
            until(lambda name=name: not self.sessions(name), within_s=GRACE_S)

    def wait_until_idle(self, name: str) -> None:
        """Wait until all CPUs of a cluster are free: Ray shows it late that something has ended."""
        until(lambda: not asyncio.run(self._used_cpus(name)))

    async def _used_cpus(self, name: str) -> float:
        async with HttpConnection(a_cluster(name, dashboard=self.head(name).dashboard)) as connection:
            return ((await connection.probe.usage()).used or {}).get("CPU", 0.0)

    def note(self, name: str) -> Path:
        return self.folder / name


def finish(process: subprocess.Popen[str]) -> Any:
    """Wait for a program and return its answer."""
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, out
    return _answer(out)


@contextmanager
def a_world(sandbox: Sandbox, folder: Path, heads: Sequence[HeadSpec] = ()) -> Iterator[World]:
    """Have a scheduler for these clusters, which forgets everything in the end."""
    tokens = {head.token_variable: head.token for head in heads if head.token_variable and head.token}
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in {**tokens, "RAY_MULTICLUSTER_HOME": str(folder / "state")}.items():
            patch.setenv(variable, value)
        scheduler = raymc.initialize_scheduler_environment(sandbox.config_path)
        yield World(sandbox=sandbox, folder=folder, tokens=tokens)
        scheduler.stop()


class Watch:
    """Notes every Ray Client session that appears on some cluster while it runs."""

    def __init__(self, world: World) -> None:
        self.seen: set[str] = set()
        self._world = world
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            for name in self._world.sandbox.heads:
                self.seen |= set(self._world.sessions(name))


def _answer(log: str) -> Any:
    lines = [line for line in log.splitlines() if line.startswith("answer:")]
    assert lines, log
    return json.loads(lines[-1].removeprefix("answer:"))
