"""The process of a scheduler: the engine, and when it ends.

It is started in three ways. In the background by a program that has submitted a job: then it ends by itself.
As the child of `raymc serve`: then it ends with the server. In the foreground by `raymc scheduler run`, for a
service manager: then it ends when it is told to.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from ray_multicluster_scheduler.background import (
    BACKGROUND,
    OPEN_STATES,
    ControlFiles,
    Message,
    Record,
    ask_to_end,
)
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.errors import SchedulerError, StoreBusy
from ray_multicluster_scheduler.log_format import logging_to_stderr
from ray_multicluster_scheduler.model.job import Lease
from ray_multicluster_scheduler.store.locks import FileLock
from ray_multicluster_scheduler.text import one_line
from ray_multicluster_scheduler.version import VERSION

log = logging.getLogger(__name__)

#: How often the process looks at its queue, its configuration and its lock.
LOOK_S = 1.0
#: Another process leads for this long: a scheduler in the background is not needed.
STAND_BY_S = 10.0
#: The starter waits so long at most for a leader.
LEAD_S = 5.0
LOG_BYTES = 2**20
LOG_FILES = 3


class _Signals:
    """SIGTERM and SIGINT end the process, SIGHUP lets it read its configuration again."""

    def __init__(self) -> None:
        self.end = self.reload = False
        #: Readable after a signal: `select` does not wait any longer then.
        self.wake, self._woken = os.pipe()
        for file in (self.wake, self._woken):
            os.set_blocking(file, False)
        signal.set_wakeup_fd(self._woken)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])  # a server holds it back until now

    def _note(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self.reload = True
        else:
            self.end = True

    def take_reload(self) -> bool:
        """Tell whether SIGHUP came since the last call."""
        asked, self.reload = self.reload, False
        with suppress(BlockingIOError):
            os.read(self.wake, 4096)
        return asked


def run_in_background(config_path: Path, *, lock_file: int, ready: int) -> int:
    """Schedule until no job has been open for `linger_s`, or until told to end. Returns the exit code."""
    lock = FileLock.inherited(lock_file)
    try:
        environ = dict(os.environ)
        scheduler = EmbeddedScheduler.open(config_path, environ=environ)
        with _logging(ControlFiles(scheduler.directory)):
            return _Background(scheduler, environ, lock, ready).run()
    except (SchedulerError, OSError) as problem:
        _say(ready, error=one_line(str(problem)))
        sys.stderr.write(f"{one_line(str(problem))}\n")
        return 1


def run_for_server(config_path: Path, *, server: int, job_address: str | None) -> int:
    """Schedule as the child of a server until that has ended. Returns the exit code."""
    signals = _Signals()
    with logging_to_stderr(access_log=False):
        try:
            return _run_in_foreground(config_path, signals, server=server, job_address=job_address)
        except SchedulerError as problem:
            log.error("%s", one_line(str(problem)))  # noqa: TRY400 - it says what to do
            return 1


def run_in_foreground(config_path: Path | None) -> int:
    """Schedule until a signal ends it; take over from a background scheduler. Returns the exit code."""
    signals = _Signals()
    with logging_to_stderr(access_log=False):
        return _run_in_foreground(config_path, signals)


def _run_in_foreground(
    config_path: Path | None,
    signals: _Signals,
    *,
    server: int | None = None,
    job_address: str | None = None,
) -> int:
    scheduler = EmbeddedScheduler.open(config_path)
    scheduler.job_address = job_address
    ends = [signals.wake, *([] if server is None else [server])]
    files, lock = ControlFiles(scheduler.directory), None
    try:
        scheduler.start()
        ask_to_end(files)
        # So that no program starts another one while the lease changes hands.
        lock = files.take(timeout_s=0.0)
        if lock is not None:
            files.write_record(_record(scheduler, "run" if server is None else "serve"))
        log.info("scheduling %s as process %d", scheduler.config.path, os.getpid())
        while not signals.end:
            readable, _, _ = select.select(ends, [], [], LOOK_S)
            scheduler.ensure_scheduled()
            if server in readable:
                log.info("the server has ended")
                break
            if signals.take_reload():
                _reload(scheduler, None)
    except SchedulerError as problem:
        log.error("%s", problem)  # noqa: TRY400 - it says what to do
        return 1
    finally:
        scheduler.stop()
        if lock is not None:
            lock.release()
    return 0


class _Background:
    """One run in the background."""

    def __init__(
        self, scheduler: EmbeddedScheduler, environ: dict[str, str], lock: FileLock, ready: int
    ) -> None:
        self._scheduler = scheduler
        self._environ = environ
        self._files = ControlFiles(scheduler.directory)
        self._lock: FileLock | None = lock
        self._ready = ready
        self._told_to_end = False
        self._config = _stamp(scheduler.config.path)
        #: Since when no job is open, and since when another process leads.
        self._idle_since: float | None = None
        self._led_by_other_since: float | None = None

    def run(self) -> int:
        scheduler, signals = self._scheduler, _Signals()
        scheduler.start()
        try:
            with self._files.receiving() as inbox:
                self._write_record()
                log.info("scheduling %s in the background", scheduler.config.path)
                self._wait_for_lead()
                _say(self._ready, pid=os.getpid())
                while not (signals.end or self._told_to_end):
                    for message in inbox.receive(LOOK_S, signals.wake):
                        self._obey(message)
                    scheduler.ensure_scheduled()
                    if signals.take_reload() or self._config_has_changed():
                        _reload(scheduler, None)
                    if self._is_over():
                        break
        except SchedulerError as problem:
            log.error("%s", problem)  # noqa: TRY400 - it says what to do
            return 1
        finally:
            scheduler.stop()
            if self._lock is not None:
                self._lock.release()
            log.info("ended; jobs go on")
        return 0

    def _wait_for_lead(self) -> None:
        """Wait for a moment until this process leads, or another does: the starter looks who it is."""
        ends_at = time.monotonic() + LEAD_S
        while self._leader() is None and time.monotonic() < ends_at:
            self._scheduler.ensure_scheduled()
            time.sleep(0.01)

    def _leader(self) -> Lease | None:
        return self._scheduler.store.leases.current(now=self._scheduler.clock.now())

    def _write_record(self) -> None:
        self._files.write_record(_record(self._scheduler, BACKGROUND))

    def _obey(self, message: Message) -> None:
        if message.stop:
            log.info("told to end")
            self._told_to_end = True
        if message.config is not None and _reload(self._scheduler, Path(message.config)):
            self._config = _stamp(self._scheduler.config.path)
            self._write_record()
        if message.variable is not None and message.value is not None:
            self._take_token(message.variable, message.value)

    def _take_token(self, variable: str, value: str) -> None:
        """Use the newest token of a cluster. No other variable is changed by a message."""
        clusters = [spec.name for spec in self._scheduler.config.clusters if spec.auth_token_env == variable]
        if clusters and self._environ.get(variable) != value:
            self._environ[variable] = value
            self._scheduler.reconnect(clusters)
            log.info("a new value of %s is used for %s", variable, ", ".join(clusters))

    def _config_has_changed(self) -> bool:
        stamp = _stamp(self._scheduler.config.path)
        if stamp is None or stamp == self._config:
            return False  # a file that is being replaced is missing for a moment
        self._config = stamp
        return True

    def _is_over(self) -> bool:
        """Tell whether nothing is left to do here, or somebody else does it."""
        if self._lock is None or not self._files.is_ours(self._lock):
            log.warning("the store's directory was removed")
            return True
        try:
            over = self._is_idle() or self._is_led_by_another()
            return over and self._has_let_go()
        except StoreBusy:
            return False

    def _is_idle(self) -> bool:
        now = time.monotonic()
        if any(self._scheduler.store.jobs.counts(OPEN_STATES).values()):
            self._idle_since = None
            return False
        self._idle_since = self._idle_since or now
        return now - self._idle_since >= self._scheduler.config.settings.linger_s

    def _is_led_by_another(self) -> bool:
        now, leader = time.monotonic(), self._leader()
        if leader is None or leader.holder == self._scheduler.holder:
            self._led_by_other_since = None
            return False
        self._led_by_other_since = self._led_by_other_since or now
        return now - self._led_by_other_since >= STAND_BY_S

    def _has_let_go(self) -> bool:
        """Let go of lease and lock, then look a last time: a job that came meanwhile must find a scheduler.

        Whoever submits writes the job first, and looks for a leader and for the lock afterwards.
        """
        assert self._lock is not None
        self._scheduler.pause()
        self._lock.release()
        self._lock = None
        if not any(self._scheduler.store.jobs.counts(OPEN_STATES).values()) or self._leader() is not None:
            return True
        self._lock = self._files.take(timeout_s=0.0)
        if self._lock is None:
            return True  # another one was started
        self._write_record()
        self._scheduler.start()
        return False


def _record(scheduler: EmbeddedScheduler, kind: str) -> Record:
    return Record(
        pid=os.getpid(),
        host=socket.gethostname(),
        version=VERSION,
        config=str(scheduler.config.path),
        kind=kind,
        began_at=time.time(),
    )


def _reload(scheduler: EmbeddedScheduler, path: Path | None) -> bool:
    """Read clusters.yaml again, or another one; a wrong file changes nothing."""
    try:
        change = scheduler.reload(path)
    except SchedulerError as problem:
        log.error("clusters.yaml was not taken over: %s", one_line(str(problem)))  # noqa: TRY400
        return False
    log.info("%s was read again: %s", scheduler.config.path, change)
    return True


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes with the content of a file; None: it is not there."""
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


def _say(ready: int, **answer: object) -> None:
    """Tell the starter, which may have ended by now."""
    with suppress(OSError):
        os.write(ready, json.dumps(answer).encode())
        os.close(ready)


@contextmanager
def _logging(files: ControlFiles) -> Iterator[None]:
    handler = logging.handlers.RotatingFileHandler(files.log, maxBytes=LOG_BYTES, backupCount=LOG_FILES)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    ours = logging.getLogger("ray_multicluster_scheduler")
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    ours.propagate = False
    try:
        yield
    finally:
        ours.removeHandler(handler)
        handler.close()
