"""The files through which programs find the background scheduler of a store, and what they tell it.

All are in the store's directory, which only its owner can enter:

| file             | what it is                                                                          |
|------------------|-------------------------------------------------------------------------------------|
| `scheduler.lock` | locked from before the process starts until it ends; holds its pid, version and file |
| `scheduler.pipe` | a named pipe, on which programs send `Message`s; nothing in it reaches the disk      |
| `scheduler.log`  | its log; `scheduler.log.1` and so on are older                                      |

A named pipe and no socket: the path of a socket may have about a hundred characters only.
"""

from __future__ import annotations

import errno
import json
import os
import select
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from ray_multicluster_scheduler.errors import SchedulerNotStarted
from ray_multicluster_scheduler.store.sqlite.file_locks import FileLock, is_held

#: A message is written in one piece if it is no longer than this, whatever else writes at the same time.
MOST_BYTES = 4096
BACKGROUND = "background"
#: How often `wait_until_gone` looks.
_LOOK_S = 0.05


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
        return holder.startswith(f"{self.host}:{self.pid}:")


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
