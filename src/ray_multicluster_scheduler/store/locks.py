"""Locks on files, also as proof of life. The kernel releases them when their process ends in any way."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import weakref
from pathlib import Path
from urllib.parse import quote

#: `flock` itself knows no time limit.
_RETRY_S = 0.01


class FileLock:
    """A lock that this process holds until `release`, or until it ends. Forked children do not hold it."""

    @classmethod
    def inherited(cls, file: int) -> FileLock:
        """Return the lock that the process which started this one has taken, and has handed over."""
        lock = cls.__new__(cls)
        os.set_inheritable(file, False)  # noqa: FBT003 - the name of the parameter is its own
        lock._file = file
        _HELD.add(lock)
        return lock

    def __init__(self, path: Path, *, shared: bool = False, timeout_s: float | None = None) -> None:
        """Wait for the lock. The file is made if it is missing. Raises OSError, or TimeoutError."""
        self._file: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _HELD.add(self)
        try:
            _lock(self._file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, timeout_s)
        except BaseException:
            self.release()
            raise

    def fileno(self) -> int:
        """Return the descriptor of the file: a process that inherits it holds the lock as well."""
        assert self._file is not None
        return self._file

    def release(self) -> None:
        """Release the lock, unless another process has inherited it."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def _lock(file: int, operation: int, timeout_s: float | None) -> None:
    if timeout_s is None:
        fcntl.flock(file, operation)
        return
    ends_at = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(file, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= ends_at:
                raise TimeoutError(f"another process has held the lock for {timeout_s:g} s") from None
            time.sleep(_RETRY_S)
        else:
            return


def is_held(path: Path, *, shared: bool = False) -> bool | None:
    """Tell whether a process holds the lock of this file; None: unknown.

    Several processes may ask at the same time about a lock that is not `shared`.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if shared else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(file)
    return False


_SUFFIX = ".lock"


class HolderLocks:
    """Knows which holders of the leader lease are still alive.

    A holder keeps a file of its own locked as long as it holds the lease, and the kernel releases the lock
    when its process ends. So no process waits for a dead leader. Where files cannot be locked, and without a
    folder (on a server, or in memory), nothing is known about a holder, and only the expiry of the lease
    counts.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._locks: dict[str, FileLock] = {}

    def announce(self, holder: str) -> None:
        """Lock the file of a holder: it counts as alive until `withdraw`, or until this process ends."""
        if self._folder is None or holder in self._locks:
            return
        with contextlib.suppress(OSError):  # then nothing is known about this holder
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._locks[holder] = FileLock(_path(self._folder, holder))

    def withdraw(self, holder: str) -> None:
        """Release the lock. The file stays, so a lease that could not be released counts as free too."""
        lock = self._locks.pop(holder, None)
        if lock is not None:
            lock.release()

    def is_dead(self, holder: str) -> bool:
        """Tell whether a holder has certainly ended. False if that is not known."""
        return self._folder is not None and is_held(_path(self._folder, holder)) is False

    def tidy(self) -> None:
        """Remove the files of holders that have ended. None of them can hold the lease any more."""
        if self._folder is None:
            return
        with contextlib.suppress(OSError):
            for path in self._folder.glob(f"*{_SUFFIX}"):
                if is_held(path) is False:
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Withdraw all holders of this process."""
        for holder in list(self._locks):
            self.withdraw(holder)


def _path(folder: Path, holder: str) -> Path:
    return folder / f"{quote(holder, safe='')}{_SUFFIX}"


_HELD: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _close_inherited() -> None:
    """Close the inherited files in a forked child: they would keep the locks when the parent ends."""
    for lock in list(_HELD):
        lock.release()


os.register_at_fork(after_in_child=_close_inherited)
