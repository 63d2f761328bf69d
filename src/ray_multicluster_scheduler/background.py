"""The background scheduler of a store: how programs find it, start it and talk to it."""

from __future__ import annotations

import errno
import json
import logging
import os
import select
import socket
import stat
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray_multicluster_scheduler.environment.options import SUBMISSION_ID_VAR
from ray_multicluster_scheduler.errors import SchedulerNotStarted
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.store.locks import FileLock, is_held
from ray_multicluster_scheduler.version import VERSION

if TYPE_CHECKING:
    from ray_multicluster_scheduler.config import Config
    from ray_multicluster_scheduler.store import Store


# The files through which programs find the background scheduler of a store, and what they tell it.
#
# All are in the store's directory, which only its owner can enter:
#
# | file             | what it is                                                                          |
# |------------------|-------------------------------------------------------------------------------------|
# | `scheduler.lock` | locked from before the process starts until it ends; holds its pid, version and file |
# | `scheduler.pipe` | a named pipe, on which programs send `Message`s; nothing in it reaches the disk      |
# | `scheduler.log`  | its log; `scheduler.log.1` and so on are older                                      |
#
# A named pipe and no socket: the path of a socket may have about a hundred characters only.


#: A message is written in one piece if it is no longer than this, whatever else writes at the same time.
MOST_BYTES = 4096
BACKGROUND = "background"
#: How often `wait_until_gone` looks.
_LOOK_S = 0.05


def holder_name() -> str:
    """Return a name for the lease that tells people which process leads."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def is_holder(holder: str, pid: int, host: str | None = None) -> bool:
    """Tell whether a process has this name; without a host, a process of this machine."""
    return holder.startswith(f"{host or socket.gethostname()}:{pid}:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What the scheduler that has the lock says of itself."""

    pid: int
    host: str
    version: str
    #: The clusters.yaml that it works with.
    config: str
    #: "background", or that it runs in the foreground: "run" (`raymc scheduler run`) or "serve".
    kind: str
    began_at: float

    def is_holder(self, holder: str) -> bool:
        """Tell whether the holder of a lease is this process."""
        return is_holder(holder, self.pid, self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a program tells a background scheduler; each field is one thing to do."""

    #: Let go of the lease and end. Jobs go on.
    stop: bool = False
    #: Work with this clusters.yaml from now on.
    config: str | None = None
    #: An environment variable that holds a cluster's token, and its value.
    variable: str | None = None
    value: str | None = None


class ControlFiles:
    """The files of one store, for the scheduler itself and for programs that use the store."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "scheduler.log"
        self._lock = directory / "scheduler.lock"
        self._pipe = directory / "scheduler.pipe"

    def take(self, *, timeout_s: float) -> FileLock | None:
        """Take the lock, or return None: a scheduler has it, or is being started."""
        try:
            return FileLock(self._lock, timeout_s=timeout_s)
        except TimeoutError:
            return None
        except OSError as problem:
            raise SchedulerNotStarted.because(f"{problem.strerror or problem}: {self._lock}") from problem

    def is_running(self) -> bool:
        """Tell whether a background scheduler runs, or is being started."""
        return is_held(self._lock) is True

    def is_ours(self, lock: FileLock) -> bool:
        """Tell whether this lock is still that of the directory: somebody may have removed it."""
        try:
            return os.path.samestat(os.fstat(lock.fileno()), self._lock.stat())
        except OSError:
            return False

    def record(self) -> Record | None:
        """Return what the scheduler says of itself; None: there is none, or it begins just now."""
        if not self.is_running():
            return None
        try:
            return Record(**json.loads(self._lock.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write_record(self, record: Record) -> None:
        """Say what runs here."""
        self._lock.write_text(json.dumps(asdict(record)))

    def send(self, message: Message) -> bool:
        """Tell the background scheduler something; False: nobody reads, or it does not fit."""
        told = json.dumps({name: value for name, value in asdict(message).items() if value}) + "\n"
        data = told.encode()
        if len(data) > MOST_BYTES:
            return False
        try:
            pipe = os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # nobody reads, or there is no pipe
            return False
        try:
            if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
                return False
            return os.write(pipe, data) == len(data)
        except OSError:
            return False
        finally:
            os.close(pipe)

    @contextmanager
    def receiving(self) -> Iterator[Inbox]:
        """Receive messages while the block runs."""
        self._pipe.unlink(missing_ok=True)
        os.mkfifo(self._pipe, 0o600)
        # For writing too: otherwise the pipe would be at its end whenever nobody writes.
        pipe = os.open(self._pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            yield Inbox(pipe)
        finally:
            os.close(pipe)
            with suppress(OSError):
                self._pipe.unlink()

    def wait_until_gone(self, timeout_s: float) -> bool:
        """Wait until no background scheduler runs; tell whether that is so."""
        ends_at = time.monotonic() + timeout_s
        while self.is_running():
            if time.monotonic() >= ends_at:
                return False
            time.sleep(_LOOK_S)
        return True

    def last_line(self) -> str:
        """Return the last line of the log, for a message."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_BYTES))
                lines = file.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""


class Inbox:
    """The reading end of the pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._rest = b""

    def receive(self, timeout_s: float, *wake: int) -> list[Message]:
        """Wait this long for messages, or until one of these files can be read; ignore other data."""
        ready, _, _ = select.select([self._pipe, *wake], [], [], timeout_s)
        if self._pipe not in ready:
            return []
        try:
            self._rest += os.read(self._pipe, 16 * MOST_BYTES)
        except OSError as error:
            if error.errno not in {errno.EAGAIN, errno.EINTR}:
                raise
        *lines, self._rest = self._rest.split(b"\n")
        self._rest = self._rest[-MOST_BYTES:]
        return [message for line in lines if (message := _message(line)) is not None]


def _message(line: bytes) -> Message | None:
    known = {field.name for field in fields(Message)}
    try:
        told = json.loads(line)
        return Message(**{name: value for name, value in told.items() if name in known})
    except (ValueError, TypeError, AttributeError):
        return None


# Programs make sure that somebody schedules: they start the background scheduler if nobody does.


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

    def ensure(self, store: Store, *, now: float, at_once: bool) -> None:
        """Start a scheduler if jobs are open and nobody schedules; raises `SchedulerNotStarted`.

        Jobs are in the store before this is called. A scheduler that is about to end lets go of its lease
        and its lock before it looks for jobs a last time: so it finds them, or this call finds both free.
        """
        with self._lock:
            if not at_once and time.monotonic() < self._look_at:
                return
            self._look_at = time.monotonic() + LOOK_EVERY_S
            leader = store.leases.current(now=now)
            if leader is not None:
                self._tell_leader(leader.holder)
            elif any(store.jobs.counts(OPEN_STATES).values()):
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
