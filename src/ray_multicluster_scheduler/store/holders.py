"""Whether the holder of the lease still lives.

It keeps a file of its own locked for as long as it holds the lease, and the kernel lets go of the lock when
its process ends, however it ends. So nobody waits for a dead process, and nobody is told that it leads.
Where files cannot be locked nothing is known, and the time of the lease decides alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from pathlib import Path
from urllib.parse import quote

_SUFFIX = ".lock"


class Holders:
    """The locks of this process, and a look at those of others. Without a folder nothing is ever known."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._locks: dict[str, int] = {}
        _ALL.add(self)

    def announce(self, holder: str) -> None:
        """Lock the file of a holder: from now on it lives until `withdraw`, or until this process ends."""
        if self._folder is None or holder in self._locks:
            return
        with contextlib.suppress(OSError):  # then nothing is known of it
            self._folder.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(self._path(self._folder, holder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._locks[holder] = lock
            fcntl.flock(lock, fcntl.LOCK_EX)

    def withdraw(self, holder: str) -> None:
        """Let go of the lock. The file stays: a lease that could not be given up is free all the same."""
        lock = self._locks.pop(holder, None)
        if lock is not None:
            os.close(lock)

    def is_dead(self, holder: str) -> bool:
        """Tell whether a holder has ended for certain."""
        return self._folder is not None and _can_be_locked(self._path(self._folder, holder))

    def tidy(self) -> None:
        """Remove the files of those that have ended. Nobody may ask for one of them any more."""
        if self._folder is None:
            return
        with contextlib.suppress(OSError):
            for path in self._folder.glob(f"*{_SUFFIX}"):
                if _can_be_locked(path):
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of everything."""
        for holder in list(self._locks):
            self.withdraw(holder)

    @staticmethod
    def _path(folder: Path, holder: str) -> Path:
        return folder / f"{quote(holder, safe='')}{_SUFFIX}"


def _can_be_locked(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # it is gone, or was never made: a holder of an older version
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


#: All of this process, because of `_close_inherited`.
_ALL: weakref.WeakSet[Holders] = weakref.WeakSet()


def _close_inherited() -> None:
    """Close what a forked child has got: it would keep the locks of its parent after the parent's end."""
    for holders in _ALL:
        holders.close()


os.register_at_fork(after_in_child=_close_inherited)
