"""Notifications between threads and processes that share a store, so that none of them has to poll it.

Each receiving process binds a datagram socket in a folder that all of them see. A process that commits a
change sends one byte to every socket there. A path that is too long for a socket address is shortened by way
of `/proc`, where there is one. A notification may get lost: somebody may have cleaned up the folder. So a
receiver also reads the store itself from time to time.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from sqlalchemy import Connection

from ray_multicluster_scheduler.store.backend import ChangeNotifier

#: The address of a socket has 104 bytes or more, the name of one of ours 25 at most.
MOST_BYTES = 75
#: A folder that is open can be reached here by a short path. Linux only.
OPEN_FILES = Path("/proc/self/fd")


class SocketNotifier(ChangeNotifier):
    """Notifies with Unix sockets. Without a folder, it notifies this process only."""

    def __init__(
        self, folder: Path | None, read_changes: Callable[[], int], *, fallback_poll_s: float
    ) -> None:
        super().__init__(read_changes, fallback_poll_s=fallback_poll_s)
        self._folder = folder
        self._own_path: Path | None = None
        self._thread: threading.Thread | None = None

    def listen(self) -> int:
        """Receive the notifications of other processes from now on; return how many came so far.

        Read the store after this call, not before it: then no change is missed.
        """
        with self._condition:
            if self._folder is not None and self._thread is None and not self._closed.is_set():
                self._start_thread(self._folder)
            return self._received

    def notify_in(self, tx: Connection) -> None:
        """Do nothing: others are notified after the commit."""

    def notify(self) -> None:
        """Notify all threads and processes: this process has committed a change."""
        self.notify_here()
        if self._folder is not None:
            self._notify_others(self._folder)

    def close(self) -> None:
        """Stop receiving, and wake all waiting threads."""
        self._closed.set()
        with self._condition:
            self._condition.notify_all()
            thread = self._thread
        if self._own_path is not None:
            _send(self._own_path.parent, [self._own_path.name])
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _notify_others(self, folder: Path) -> None:
        own_name = None if self._own_path is None else self._own_path.name
        with (
            contextlib.suppress(OSError),
            os.scandir(folder) as entries,
        ):  # no folder: no process ever listened
            _send(folder, (entry.name for entry in entries if entry.name != own_name))

    def _start_thread(self, folder: Path) -> None:
        path = folder / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.sock"
        receiver = _bind(path)
        self._own_path = path if receiver is not None else None
        self._thread = threading.Thread(
            target=self._run, args=(receiver,), name="raymc-notifications", daemon=True
        )
        self._thread.start()

    def _run(self, receiver: socket.socket | None) -> None:
        try:
            while not self._closed.is_set():
                if self._receive(receiver):
                    self.notify_here()
                else:
                    self._notify_if_changed()
        finally:
            if receiver is not None and self._own_path is not None:
                receiver.close()
                self._own_path.unlink(missing_ok=True)

    def _receive(self, receiver: socket.socket | None) -> bool:
        """Wait for a notification; False when none came in time."""
        if receiver is None:
            self._closed.wait(self._fallback_poll_s)
            return False
        receiver.settimeout(self._fallback_poll_s)
        try:
            receiver.recv(1)
            receiver.settimeout(0)
            while True:  # notifications that piled up in the meantime count as one
                receiver.recv(1)
        except TimeoutError:
            return False
        except BlockingIOError:
            return True


def _bind(path: Path) -> socket.socket | None:
    """Return a socket that receives at `path`, or None where that is not possible."""
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with _short(path.parent) as folder:
            receiver.bind(f"{folder}/{path.name}")
    except OSError:  # usually because the path is too long for a socket address
        receiver.close()
        return None
    return receiver


def _send(folder: Path, names: Iterable[str]) -> None:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,  # one for all: there may be many
        _short(folder) as short,
    ):
        sender.settimeout(0)
        for name in names:
            try:
                sender.sendto(b"!", f"{short}/{name}")
            except ConnectionRefusedError:  # the receiving process is gone
                (folder / name).unlink(missing_ok=True)
            except OSError:  # its buffer is full, or it has just ended: the fallback covers the rest
                continue


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[str]:
    """Yield a path of a folder that leaves room for a name in a socket address, if there is one."""
    if len(os.fsencode(folder)) < MOST_BYTES or not OPEN_FILES.is_dir():
        yield os.fspath(folder)
        return
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"{OPEN_FILES}/{opened}"
    finally:
        os.close(opened)
