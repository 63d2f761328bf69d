"""A bell between threads and processes that share a store, so that nobody has to poll it.

Each listening process binds a datagram socket in a folder that all of them see; whoever commits sends one
byte to every socket there. A ring may get lost (a path too long for a socket address, a folder that was
cleaned up), so a listener also looks at the store itself from time to time.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from ray_multicluster_scheduler.errors import StoreError

#: How late a change is noticed at worst, when its ring got lost.
FALLBACK_S = 1.0


class Bell:
    """Wakes who waits, here and in other processes. Without a folder it rings in this process only.

    `read_mark` returns a number that differs after a change; it is looked at when no ring came for a while.
    """

    def __init__(self, folder: Path | None, read_mark: Callable[[], int], *, fallback_s: float) -> None:
        self._folder = folder
        self._read_mark = read_mark
        self._fallback_s = fallback_s
        self._changed = threading.Condition()
        self._rings = 0
        self._callbacks: dict[object, Callable[[], None]] = {}
        self._closed = threading.Event()
        self._own: Path | None = None
        self._listener: threading.Thread | None = None

    def listen(self) -> int:
        """Hear other processes from now on; return how often it has rung. Look at the store after that."""
        with self._changed:
            if self._folder is not None and self._listener is None and not self._closed.is_set():
                self._start_listener(self._folder)
            return self._rings

    def wait(self, heard: int, *, timeout_s: float) -> None:
        """Sleep until it has rung more often than `heard`, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._rings > heard or self._closed.is_set(), timeout_s)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` at each ring, from whichever thread noticed it; returns what ends that.

        It must return at once, as `loop.call_soon_threadsafe(event.set)` does.
        """
        key = object()
        with self._changed:
            self._callbacks[key] = callback
        self.listen()
        return partial(self._unsubscribe, key)

    def ring(self) -> None:
        """Wake everybody: something was committed here."""
        self._ring_here()
        if self._folder is not None:
            self._ring_others(self._folder)

    def close(self) -> None:
        """Stop listening and wake who still waits."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
            listener = self._listener
        if self._own is not None:
            _send([os.fspath(self._own)])
        if listener is not None and listener is not threading.current_thread():
            listener.join()

    def wake(self) -> None:
        """Wake who waits in this process, and nobody else."""
        self._ring_here()

    def _unsubscribe(self, key: object) -> None:
        with self._changed:
            self._callbacks.pop(key, None)

    def _ring_here(self) -> None:
        with self._changed:
            self._rings += 1
            callbacks = tuple(self._callbacks.items())
            self._changed.notify_all()
        for key, callback in callbacks:
            try:
                callback()
            except RuntimeError:  # its event loop is closed; that must not fail who has just committed
                self._unsubscribe(key)

    def _ring_others(self, folder: Path) -> None:
        own = None if self._own is None else self._own.name
        with contextlib.suppress(OSError), os.scandir(folder) as found:  # no folder: nobody has ever listened
            _send(entry.path for entry in found if entry.name != own)

    def _start_listener(self, folder: Path) -> None:
        own = folder / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.sock"
        ear = _bind(own)
        self._own = own if ear is not None else None
        self._listener = threading.Thread(target=self._run, args=(ear,), name="raymc-bell", daemon=True)
        self._listener.start()

    def _run(self, ear: socket.socket | None) -> None:
        seen: int | None = None
        try:
            while not self._closed.is_set():
                if self._heard_ring(ear):
                    self._ring_here()
                    continue
                mark = self._mark()
                if mark is None or mark != seen:  # None: unreadable; woken waiters see the error
                    self._ring_here()
                seen = mark
        finally:
            if ear is not None and self._own is not None:
                ear.close()
                self._own.unlink(missing_ok=True)

    def _heard_ring(self, ear: socket.socket | None) -> bool:
        if ear is None:
            self._closed.wait(self._fallback_s)
            return False
        ear.settimeout(self._fallback_s)
        try:
            ear.recv(1)
            ear.settimeout(0)
            while True:  # rings that piled up meanwhile are one ring
                ear.recv(1)
        except TimeoutError:
            return False
        except BlockingIOError:
            return True

    def _mark(self) -> int | None:
        try:
            return self._read_mark()
        except StoreError:
            return None


def _bind(path: Path) -> socket.socket | None:
    """Return a socket that hears at `path`, or None where that is not possible."""
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        ear.bind(os.fspath(path))
    except OSError:  # above all: the path is too long for a socket address
        ear.close()
        return None
    return ear


def _send(paths: Iterable[str]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mouth:  # one for all: there may be many
        mouth.settimeout(0)
        for path in paths:
            try:
                mouth.sendto(b"!", path)
            except ConnectionRefusedError:  # its process is gone
                Path(path).unlink(missing_ok=True)
            except OSError:  # it has unread rings already, or has just left: the fallback covers the rest
                continue
