"""How a fake cluster runs an entrypoint: with a real shell, or by simulating it without processes."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shlex
import signal
import tempfile
import zipfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Protocol

#: What a shell returns for a command that it does not find.
NOT_FOUND = 127
TERMINATED = -int(signal.SIGTERM)
KILLED = -int(signal.SIGKILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One entrypoint, with everything that Ray would pass to it."""

    submission_id: str
    entrypoint: str
    env_vars: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    #: The bytes of the zip file that is the job's working directory.
    working_dir: bytes | None = None


class Run(Protocol):
    """One entrypoint that was started."""

    async def wait(self) -> int:
        """Return the exit code when it has ended; negative for a signal."""

    def terminate(self) -> None:
        """Ask it to end, as SIGTERM does."""

    def kill(self) -> None:
        """End it and all that it started, as SIGKILL does. Harmless when it has ended."""

    def log(self) -> str:
        """Return what it wrote so far."""


class Runner(Protocol):
    """Starts entrypoints."""

    async def start(self, request: RunRequest) -> Run:
        """Start one and return at once."""


class ShellRunner:
    """Runs entrypoints with /bin/sh, each in a process group of its own."""

    async def start(self, request: RunRequest) -> ShellRun:
        """Start the shell with the job's variables, in its working directory."""
        home = tempfile.TemporaryDirectory(prefix="fake-ray-")
        if request.working_dir is not None:
            zipfile.ZipFile(io.BytesIO(request.working_dir)).extractall(home.name)
        log = tempfile.TemporaryFile()  # noqa: SIM115  (closed when the run has ended)
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            request.entrypoint,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=asyncio.subprocess.STDOUT,
            cwd=home.name,
            env=_environment(request),
            start_new_session=True,
        )
        return ShellRun(process, log, home)


class ShellRun:
    """A shell and its process group, with the log in a file that has no name."""

    def __init__(
        self, process: asyncio.subprocess.Process, log: IO[bytes], home: tempfile.TemporaryDirectory[str]
    ) -> None:
        self._process = process
        self._log = log
        self._home = home
        self._final_log: str | None = None

    async def wait(self) -> int:
        """Wait for the shell, then end the processes that it left behind in its group."""
        code = await self._process.wait()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._final_log is None:
            self._final_log = self.log()
            self._log.close()
            self._home.cleanup()
        return code

    def terminate(self) -> None:
        """Send SIGTERM to the group."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the group."""
        self._signal(signal.SIGKILL)

    def log(self) -> str:
        """Read the log, without moving the place where the shell writes."""
        if self._final_log is not None:
            return self._final_log
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode("utf-8", "replace")

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def _environment(request: RunRequest) -> dict[str, str]:
    """Return the variables that Ray gives to an entrypoint; `${NAME}` means the value on the cluster."""
    own = {
        name: re.sub(r"\$\{(\w+)\}", lambda match: os.environ.get(match[1], ""), str(value))
        for name, value in request.env_vars.items()
    }
    names = {"job_submission_id": request.submission_id, "job_name": request.submission_id}
    config = {"runtime_env": {"env_vars": dict(request.env_vars)}, "metadata": {**names, **request.metadata}}
    return {
        **os.environ,
        **own,
        "PYTHONUNBUFFERED": "1",
        "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(config),
    }


class ScriptedRunner:
    """Simulates entrypoints made of `sleep N`, `echo TEXT` and `exit N`, joined by `;` or `&&`.

    No process is started, so thousands of jobs fit into one test; `sleep` can be a virtual clock's.
    """

    def __init__(self, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        self._sleep = sleep

    async def start(self, request: RunRequest) -> ScriptedRun:
        """Begin the simulation."""
        return ScriptedRun(request.entrypoint, self._sleep)


class ScriptedRun:
    """One simulated entrypoint."""

    def __init__(self, entrypoint: str, sleep: Callable[[float], Awaitable[object]]) -> None:
        self._lines: list[str] = []
        self._sleep = sleep
        self._ended_by = TERMINATED
        self._task = asyncio.ensure_future(self._simulate(entrypoint))

    async def wait(self) -> int:
        """Wait for the last command, or for a signal."""
        await asyncio.wait({self._task})
        return self._ended_by if self._task.cancelled() else self._task.result()

    def terminate(self) -> None:
        """End the simulation."""
        self._task.cancel()

    def kill(self) -> None:
        """End the simulation."""
        if not self._task.done():
            self._ended_by = KILLED
        self._task.cancel()

    def log(self) -> str:
        """Return the lines so far."""
        return "".join(self._lines)

    async def _simulate(self, entrypoint: str) -> int:
        code = 0
        first, *rest = re.split(r"(;|&&)", entrypoint)
        for joint, command in [(";", first), *zip(rest[::2], rest[1::2], strict=True)]:
            if joint == "&&" and code != 0:
                continue
            match shlex.split(command):
                case []:
                    pass
                case ["sleep", seconds]:
                    await self._sleep(float(seconds))
                    code = 0
                case ["echo", *words]:
                    self._lines.append(" ".join(words) + "\n")
                    code = 0
                case ["exit", number]:
                    return int(number)
                case [name, *_]:
                    self._lines.append(f"/bin/sh: 1: {name}: not found\n")
                    code = NOT_FOUND
        return code
