"""The state and behaviour of a fake cluster, without HTTP: jobs, packages, a node, resources, its death.

An entrypoint is run with a real shell, or simulated without processes.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import tempfile
import time
import weakref
import zipfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from ray_multicluster_scheduler.model.execution import AttemptStatus
from ray_multicluster_scheduler.model.resources import Resources, plus, shortfall

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


# The body of a submit, checked as Ray checks it.


_KEYS = {
    "entrypoint": str,
    "submission_id": str,
    "job_id": str,
    "runtime_env": dict,
    "metadata": dict,
    "entrypoint_num_cpus": (int, float),
    "entrypoint_num_gpus": (int, float),
    "entrypoint_memory": int,
    "entrypoint_resources": dict,
    "entrypoint_label_selector": dict,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One submitted job."""

    submission_id: str
    entrypoint: str
    #: None when the caller left it out: Ray shows it so.
    runtime_env: Mapping[str, Any] | None
    metadata: Mapping[str, str] | None
    #: The resources that the driver itself holds while it runs.
    demand: Mapping[str, float]
    label_selector: Mapping[str, str] = field(default_factory=dict)


def parse_submission(body: Mapping[str, Any]) -> Submission:
    """Check a body. A `TypeError` has the message of Ray."""
    values = {key: value for key, value in body.items() if value is not None}
    for key, value in values.items():
        if key not in _KEYS:
            raise TypeError(f"JobSubmitRequest.__init__() got an unexpected keyword argument '{key}'")
        if not isinstance(value, _KEYS[key]):  # type: ignore[arg-type]
            raise TypeError(f"{key} must be a {_KEYS[key]}, got {type(value)}")
    if "entrypoint" not in values:
        raise TypeError("JobSubmitRequest.__init__() missing 1 required positional argument: 'entrypoint'")
    for key, value in values.get("metadata", {}).items():
        if not isinstance(value, str):
            raise TypeError(f"metadata values must be strings, got {type(value)} for {key}")
    demand = {
        "CPU": values.get("entrypoint_num_cpus", 0),
        "GPU": values.get("entrypoint_num_gpus", 0),
        "memory": values.get("entrypoint_memory", 0),
        **values.get("entrypoint_resources", {}),
    }
    return Submission(
        submission_id=values.get("submission_id")
        or values.get("job_id")
        or f"raysubmit_{secrets.token_hex(8)}",
        entrypoint=values["entrypoint"],
        runtime_env=values.get("runtime_env"),
        metadata=values.get("metadata"),
        demand={name: float(amount) for name, amount in demand.items() if amount > 0},
        label_selector=values.get("entrypoint_label_selector", {}),
    )


#: SIGTERM, then this long, then SIGKILL: as Ray.
STOP_WAIT_S = 3.0
#: `logs/job-driver-<id>.log` must be a file name; Ray finds out only after it wrote the job's record.
LONGEST_FILE_NAME = 255 - len("job-driver-.log")
PACKAGE_SCHEME = "gcs://"
ENVIRONMENT_FAILURE = "RUNTIME_ENV_SETUP_FAILURE"
ASKED_FOR = "this failure was asked for"
SUPERVISOR_DIED = "JOB_SUPERVISOR_ACTOR_DIED"


class Refused(Exception):
    """An answer with an error status, in Ray's words."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


@dataclass(slots=True, kw_only=True)
class FakeJob:
    """One submission, as the fake cluster remembers it."""

    submission: Submission
    submitted_at: float
    status: AttemptStatus = AttemptStatus.PENDING
    message: str = ""
    error_type: str | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    node_id: str | None = None
    log: str = ""
    run: Run | None = None
    #: It has its resources and is about to run.
    admitted: bool = False
    stop_requested: bool = False
    #: Ray failed after it wrote the record: PENDING for ever.
    ghost: bool = False
    #: Ray's helper for this job was killed.
    supervisor_died: bool = False
    #: How many more reads report a failure that did not happen.
    misreports: int = 0


@dataclass(slots=True, kw_only=True)
class RunRecord:
    """A program that really ran: evidence that is independent of the protocol."""

    submission_id: str
    entrypoint: str
    start: float
    end: float | None = None
    exit_code: int | None = None
    session_name: str


@dataclass(kw_only=True)
class FakeCluster:
    """The cluster behind a `FakeRay`."""

    name: str
    total: Resources
    runner: Runner
    now: Callable[[], float] = time.time
    foreign_use: Resources = field(default_factory=dict)
    jobs: dict[str, FakeJob] = field(default_factory=dict)
    packages: dict[str, bytes] = field(default_factory=dict)
    runs: list[RunRecord] = field(default_factory=list)
    raylet_alive: bool = True
    #: Why no job can be started now, as Ray's error_type; None: jobs can be started.
    start_failure: str | None = None
    #: The message of Ray about it.
    start_failure_words: str = ASKED_FOR
    session_name: str = field(init=False)
    node_id: str = field(init=False)
    #: Where its node keeps logs, and jobs their results.
    logs_dir: Path = field(init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.logs_dir = Path(tempfile.mkdtemp(prefix="fake-ray-logs-"))
        weakref.finalize(self, shutil.rmtree, self.logs_dir, ignore_errors=True)
        self._begin_session()

    def _begin_session(self) -> None:
        self.session_name = f"session_{self.name}_{secrets.token_hex(8)}"
        self.node_id = secrets.token_hex(28)

    def submit(self, submission: Submission) -> None:
        """Accept a job; it starts when its driver's resources are free."""
        if not self.raylet_alive:
            raise Refused(500, "No available agent to submit job, please try again later.")
        name = submission.submission_id
        if name in self.jobs:
            sentence = f"Job with submission_id {name} already exists. Please use a different submission_id."
            raise Refused(500, traceback_of(f"ValueError: {sentence}"))
        job = FakeJob(submission=submission, submitted_at=self.now())
        self.jobs[name] = job
        if "/" in name or len(name.encode()) > LONGEST_FILE_NAME:
            job.ghost = True
            raise Refused(500, traceback_of("OSError: the log file of the driver cannot be opened"))
        self.start_what_fits()

    def job(self, submission_id: str) -> FakeJob:
        """Return a job, or refuse as Ray does."""
        if submission_id not in self.jobs:
            raise Refused(404, f"Job {submission_id} does not exist")
        return self.jobs[submission_id]

    def stop(self, submission_id: str) -> bool:
        """Stop a job; one that waits for resources notices it when it starts, as in Ray."""
        job = self.job(submission_id)
        self._need_agent()
        if job.status.final:
            return False
        if job.run is not None and not job.stop_requested:
            job.run.terminate()
            asyncio.get_running_loop().call_later(STOP_WAIT_S, job.run.kill)
        job.stop_requested = True
        return True

    def delete(self, submission_id: str) -> None:
        """Forget a job that has ended."""
        job = self.job(submission_id)
        self._need_agent()
        if not job.status.final:
            state = f"non-terminal state {job.status.value}"
            raise Refused(
                500,
                traceback_of(
                    f"RuntimeError: Attempted to delete job '{submission_id}', but it is in a {state}."
                ),
            )
        del self.jobs[submission_id]

    def logs(self, submission_id: str) -> str:
        """Return the log of a job."""
        job = self.job(submission_id)
        self._need_agent()
        return job.log + (job.run.log() if job.run is not None else "")

    def log_file(self, node_id: str, name: str) -> Path:
        """Return the path of a file among the logs of a node, whether it is there or not."""
        if node_id != self.node_id or not self.raylet_alive:
            raise Refused(500, f"Given node id {node_id} is not available.")
        return self.logs_dir / name

    def _need_agent(self) -> None:
        if not self.raylet_alive:
            raise Refused(500, traceback_of("aiohttp.client_exceptions.ClientConnectorError: Cannot connect"))

    def used(self) -> dict[str, float]:
        """Return the resources that drivers and other programs hold."""
        used = dict.fromkeys(self.total, 0.0)
        for amount in (self.foreign_use, *(job.submission.demand for job in self._holding())):
            used = plus(used, amount)
        return used

    def _holding(self) -> list[FakeJob]:
        return [job for job in self.jobs.values() if job.admitted and not job.status.final]

    def waiting(self) -> list[FakeJob]:
        """Return the jobs whose drivers have no room yet."""
        return [
            job
            for job in self.jobs.values()
            if job.status is AttemptStatus.PENDING and not job.admitted and not job.ghost
        ]

    def start_what_fits(self) -> None:
        """Start every waiting job that has room now."""
        if not self.raylet_alive:
            return
        used = self.used()
        for job in self.waiting():
            demand = job.submission.demand
            if not shortfall(demand, {name: total - used[name] for name, total in self.total.items()}):
                used = plus(used, demand)
                job.admitted = True
                task = asyncio.get_running_loop().create_task(self._execute(job))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _execute(self, job: FakeJob) -> None:
        session = self.session_name
        missing = [uri for uri in _package_uris(job.submission.runtime_env) if uri not in self.packages]
        if missing or self.start_failure:
            job.error_type = self.start_failure or ENVIRONMENT_FAILURE
            asked_for = self.start_failure_words.replace("{runtime_env}", str(job.submission.runtime_env))
            what = f"Failed to download {missing[0]}" if missing else asked_for
            why = "runtime_env setup failed: " if job.error_type == ENVIRONMENT_FAILURE else ""
            self._end(job, AttemptStatus.FAILED, why + what)
            return
        if job.stop_requested:
            self._end(job, AttemptStatus.STOPPED, "Job was intentionally stopped.")
            return
        run = await self.runner.start(self._request(job))
        record = RunRecord(
            submission_id=job.submission.submission_id,
            entrypoint=job.submission.entrypoint,
            start=self.now(),
            session_name=session,
        )
        self.runs.append(record)
        self._show_running(job, run, session)
        record.exit_code = await run.wait()
        record.end = self.now()
        if self.session_name == session and self.raylet_alive:
            self._finish(job, run, record.exit_code)

    def _show_running(self, job: FakeJob, run: Run, session: str) -> None:
        job.run = run
        if self.session_name != session or not self.raylet_alive:  # died while it was starting
            run.kill()
            return
        job.status, job.node_id = AttemptStatus.RUNNING, self.node_id
        stamp = time.strftime("%Y-%m-%d %H:%M:%S,000", time.localtime(self.now()))
        job.log = (
            f"{stamp}\tINFO job_manager.py:581 -- Runtime env is setting up.\n"
            f"Running entrypoint for job {job.submission.submission_id}: {job.submission.entrypoint}\n"
        )
        if job.stop_requested:
            run.terminate()
            asyncio.get_running_loop().call_later(STOP_WAIT_S, run.kill)

    def _finish(self, job: FakeJob, run: Run, code: int) -> None:
        job.log, job.run = job.log + run.log(), None
        if job.stop_requested:
            self._end(job, AttemptStatus.STOPPED, "Job was intentionally stopped.")
        elif job.supervisor_died:
            job.error_type = SUPERVISOR_DIED
            self._end(job, AttemptStatus.FAILED, "Unexpected error occurred: The actor died unexpectedly")
        elif code == 0:
            job.exit_code = 0
            self._end(job, AttemptStatus.SUCCEEDED, "Job finished successfully.")
        else:
            job.exit_code, job.error_type = code, "JOB_ENTRYPOINT_COMMAND_ERROR"
            last = "".join(job.log.splitlines(keepends=True)[-10:])[-20_000:]
            why = f"last available logs (truncated to 20,000 chars):\n{last}"
            self._end(
                job, AttemptStatus.FAILED, f"Job entrypoint command failed with exit code {code}, {why}"
            )

    def _end(self, job: FakeJob, status: AttemptStatus, message: str) -> None:
        job.status, job.message, job.ended_at = status, message, self.now()
        self.start_what_fits()

    def _request(self, job: FakeJob) -> RunRequest:
        submission = job.submission
        runtime_env = submission.runtime_env or {}
        return RunRequest(
            submission_id=submission.submission_id,
            entrypoint=submission.entrypoint,
            env_vars=runtime_env.get("env_vars") or {},
            metadata=submission.metadata or {},
            working_dir=self.packages.get(str(runtime_env.get("working_dir"))),
        )

    def kill_supervisor(self, submission_id: str) -> None:
        """Kill Ray's helper for a job; its program dies with it."""
        job = self.job(submission_id)
        assert job.run is not None, f"{submission_id} does not run"
        job.supervisor_died = True
        job.run.kill()

    def kill_raylet(self) -> None:
        """Let all jobs die while their records stay as they are."""
        self.raylet_alive = False
        self._kill_runs()

    def restart(self) -> None:
        """Kill everything, forget everything, begin a new session."""
        self._kill_runs()
        self.jobs, self.packages, self.raylet_alive = {}, {}, True
        self._begin_session()

    def _kill_runs(self) -> None:
        for job in self.jobs.values():
            if job.run is not None:
                job.run.kill()

    async def close(self) -> None:
        """End every run and wait until it is gone."""
        self.restart()
        await asyncio.gather(*self._tasks)


def _package_uris(runtime_env: Mapping[str, Any] | None) -> list[str]:
    env = runtime_env or {}
    uris = [env.get("working_dir"), *(env.get("py_modules") or [])]
    return [uri for uri in uris if isinstance(uri, str) and uri.startswith(PACKAGE_SCHEME)]


def traceback_of(last_line: str) -> str:
    """Wrap an error as Ray's dashboard does: the agent's traceback inside of its own."""
    return (
        "Traceback (most recent call last):\n"
        '  File "ray/dashboard/modules/job/job_head.py", line 134, in _raise_error\n'
        "RuntimeError: Request failed with status code 400: Traceback (most recent call last):\n"
        '  File "ray/dashboard/modules/job/job_agent.py", line 45, in handle\n'
        f"{last_line}\n.\n"
    )
