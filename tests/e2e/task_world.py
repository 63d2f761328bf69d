"""Real clusters for tests of tasks and actors: programs run on them, and their processes are counted."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray_multicluster_scheduler as raymc
from ray_multicluster_scheduler.local import Head, Sandbox

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
    started: list[subprocess.Popen[str]] = field(default_factory=list)

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
            runtime_env={"env_vars": {"PYTHONPATH": str(PROGRAMS)}},
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
        process = subprocess.Popen(
            [
                sys.executable,
                str(PROGRAMS / program),
                str(self.config),
                str(self.folder),
                *map(str, arguments),
            ],
            env={**clean, "PYTHONPATH": str(PROGRAMS), **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def sessions(self, name: str) -> list[str]:
        """The Ray Client helper processes that a cluster runs now."""
        mark = f"--address={self.head(name).gcs_address} "
        return [line for line in command_lines() if "--mode=specific-server" in line and mark in line]

    def note(self, name: str) -> Path:
        return self.folder / name


def finish(process: subprocess.Popen[str]) -> Any:
    """Wait for a program and return its answer."""
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, out
    return _answer(out)


def until(what: Callable[[], object], *, within_s: float = PATIENCE_S) -> Any:
    """Wait until something is true, and return it."""
    ends_at = time.monotonic() + within_s
    while not (value := what()):
        assert time.monotonic() < ends_at, f"not within {within_s:g} s"
        time.sleep(0.1)
    return value


def command_lines() -> Iterator[str]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it may end while we look
            yield file.read_bytes().replace(b"\0", b" ").decode(errors="replace")


def _answer(log: str) -> Any:
    lines = [line for line in log.splitlines() if line.startswith("answer:")]
    assert lines, log
    return json.loads(lines[-1].removeprefix("answer:"))
