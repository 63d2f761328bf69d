"""Programs make sure that somebody schedules: they start the background scheduler if nobody does."""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray_multicluster_scheduler.background.control import BACKGROUND, ControlFiles, Message, Record
from ray_multicluster_scheduler.environment.env_vars import SUBMISSION_ID_VAR
from ray_multicluster_scheduler.errors import SchedulerNotStarted
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.version import VERSION

if TYPE_CHECKING:
    from ray_multicluster_scheduler.config import Config
    from ray_multicluster_scheduler.store.sqlite.file_locks import FileLock
    from ray_multicluster_scheduler.store_ports import JobStore

log = logging.getLogger(__name__)

BACKGROUND_VARIABLE = "RAY_MULTICLUSTER_BACKGROUND"
#: What the background scheduler keeps of the environment of the program that starts it, beside the variables
#: of the clusters' tokens and those that `scheduler.keep_env` names: it may outlive the program by days.
KEPT_VARIABLES = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "TEMP", "TMP",
    "PYTHONPATH", "PYTHONHOME", "PYTHONUTF8", "PYTHONWARNINGS", "VIRTUAL_ENV", "CONDA_*", "LD_LIBRARY_PATH",
    "DYLD_*", "*_PROXY", "*_proxy", "SSL_CERT_*", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "RAY_*", "PG*",
    "COVERAGE_*",
)  # fmt: skip
#: Somebody who only looks at the lock holds it for a moment.
_LOCK_S = 0.1
#: A program that waits looks this often whether somebody schedules.
LOOK_EVERY_S = 1.0
#: A busy machine may take long to start a process.
START_TIMEOUT_S = 60.0
#: How long a scheduler of an older version may take to end.
STOP_TIMEOUT_S = 30.0

#: Not a warning, but worth a line on stderr: the command line leaves out the word.
NOTICE = {"notice": True}
OPEN_STATES = frozenset(JobState) - FINAL


class BackgroundScheduler:
    """The background scheduler of one store, as a program sees it that uses the store."""

    def __init__(self, config: Config, directory: Path, environ: Mapping[str, str]) -> None:
        self._config = config
        self._files = ControlFiles(directory)
        self._environ = environ
        self._lock = threading.Lock()
        self._look_at = 0.0
        #: The holder of the lease that was told what this program knows.
        self._told: str | None = None
        self._warned = False

    def ensure(self, store: JobStore, *, now: float, at_once: bool) -> None:
        """Start a scheduler if jobs are open and nobody schedules; raises `SchedulerNotStarted`.

        Jobs are in the store before this is called. A scheduler that is about to end lets go of its lease
        and its lock before it looks for jobs a last time: so it finds them, or this call finds both free.
        """
        with self._lock:
            if not at_once and time.monotonic() < self._look_at:
                return
            self._look_at = time.monotonic() + LOOK_EVERY_S
            leader = store.leader(now=now)
            if leader is not None:
                self._tell_leader(leader.holder)
            elif any(store.counts(OPEN_STATES).values()):
                self._start()

    def _start(self) -> None:
        if SUBMISSION_ID_VAR in self._environ:
            return  # inside a job: its node is no place for a scheduler
        if not is_wanted(self._config, self._environ):
            self._say_that_nobody_schedules()
            return
        lock = self._files.take(timeout_s=_LOCK_S)
        if lock is None:
            return  # another program starts one
        try:
            pid = start_scheduler(self._files, lock, self._config, self._environ)
        finally:
            lock.release()
        log.warning(
            "a scheduler for this store runs in the background, pid %d; it ends by itself when no job is "
            "open (`raymc scheduler stop` ends it now)",
            pid,
            extra=NOTICE,
        )

    def _say_that_nobody_schedules(self) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "no scheduler runs for this store, and none is started (background: false): nothing starts "
                "jobs until `raymc scheduler run` or `raymc serve` runs"
            )

    def _tell_leader(self, holder: str) -> None:
        """Tell a background scheduler what this program knows better; once."""
        if self._told == holder:
            return
        self._told = holder
        record = self._files.record()
        if record is None or record.kind != BACKGROUND or not record.is_holder(holder):
            return  # `raymc serve` leads, or another machine
        if is_newer(VERSION, record.version):
            self._replace(record)
            return
        for name, value in tokens(self._config, self._environ).items():
            if not self._files.send(Message(variable=name, value=value)):
                log.warning("the background scheduler could not be told the value of %s", name)
        if record.config != str(self._config.path):
            self._files.send(Message(config=str(self._config.path)))
            log.warning(
                "the background scheduler uses %s from now on, no longer %s",
                self._config.path,
                record.config,
            )

    def _replace(self, record: Record) -> None:
        log.warning("the background scheduler is of version %s; %s takes over", record.version, VERSION)
        if ask_to_end(self._files):
            self._start()


def is_wanted(config: Config, environ: Mapping[str, str]) -> bool:
    """Tell whether programs may start a scheduler in the background."""
    told = environ.get(BACKGROUND_VARIABLE, "").strip().lower()
    return config.settings.background if not told else told not in {"0", "false", "no", "off"}


def tokens(config: Config, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the tokens of the clusters that this program has, by the names of their variables."""
    names = {spec.auth_token_env for spec in config.clusters if spec.auth_token_env}
    return {name: environ[name] for name in sorted(names) if environ.get(name)}


def kept_environ(environ: Mapping[str, str], keep: Iterable[str]) -> dict[str, str]:
    """Return the part of an environment that a background scheduler keeps."""
    patterns = (*KEPT_VARIABLES, *keep)
    return {
        name: value
        for name, value in environ.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def is_newer(version: str, than: str) -> bool:
    """Tell whether a version of this package comes after another one."""
    return _numbers(version) > _numbers(than)


def _numbers(version: str) -> list[int]:
    return [int(part) if part.isdecimal() else -1 for part in version.split(".")]


def start_scheduler(files: ControlFiles, lock: FileLock, config: Config, environ: Mapping[str, str]) -> int:
    """Start a scheduler that goes on when this program has ended; it gets the lock. Return its pid.

    Raises `SchedulerNotStarted` with the reason.
    """
    if not sys.executable:
        raise SchedulerNotStarted.because(
            "this Python does not know its own interpreter; `raymc scheduler run` schedules"
        )
    keep = (*config.settings.keep_env, *tokens(config, environ))
    ready, said = os.pipe()
    try:
        with files.log.open("ab") as output:
            launcher = subprocess.Popen(
                command(config.path, "--lock", str(lock.fileno()), "--ready", str(said)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=files.directory,
                env=kept_environ(environ, keep),
                pass_fds=(lock.fileno(), said),
                start_new_session=True,
            )
    except OSError as problem:
        os.close(ready)
        raise SchedulerNotStarted.because(f"{problem.strerror or problem}: {sys.executable}") from problem
    finally:
        os.close(said)
    try:
        launcher.wait()  # it has forked: whoever adopts the scheduler will reap it
        answer = _read(ready)
    finally:
        os.close(ready)
    if "pid" not in answer:
        why = answer.get("error") or files.last_line() or f"its process ended ({launcher.returncode})"
        raise SchedulerNotStarted.because(f"{why} (the log is {files.log})")
    return int(answer["pid"])


def ask_to_end(files: ControlFiles) -> bool:
    """Let a background scheduler of this store end, if there is one; tell whether none runs any more."""
    return not files.send(Message(stop=True)) or files.wait_until_gone(STOP_TIMEOUT_S)


def end_schedulers(home: Path) -> None:
    """Let the background schedulers of all stores in this folder end."""
    for pipe in home.glob("*/scheduler.pipe"):
        ask_to_end(ControlFiles(pipe.parent))


def command(config_path: Path, *options: str) -> list[str]:
    """Return the command line of a scheduler process."""
    module = "ray_multicluster_scheduler.scheduler_process"
    return [sys.executable, "-m", module, "--config", str(config_path), *options]


def _read(pipe: int) -> dict[str, Any]:
    """Return what the new process says of its start: its pid, or what is wrong. Nothing: it is gone."""
    ends_at, told = time.monotonic() + START_TIMEOUT_S, b""
    while True:
        readable, _, _ = select.select([pipe], [], [], max(0.0, ends_at - time.monotonic()))
        if not readable:
            return {"error": f"it has not begun to work within {START_TIMEOUT_S:g} s"}
        piece = os.read(pipe, 65536)
        told += piece
        if not piece:
            break
    try:
        answer = json.loads(told)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
