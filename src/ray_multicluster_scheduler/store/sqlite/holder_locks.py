"""Whether the holder of the leader lease is still alive.

A holder keeps a file of its own locked as long as it holds the lease, and the kernel releases the lock when
its process ends. So no process waits for a dead leader. Where files cannot be locked, nothing is known about
a holder, and only the expiry of the lease counts.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from urllib.parse import quote

from ray_multicluster_scheduler.store.sqlite.file_locks import FileLock, is_held

_SUFFIX = ".lock"


class HolderLocks:
    """`backend.HolderLiveness` with locked files. Without a folder, no holder is ever known to be dead."""

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
        """Tell whether a holder has certainly ended. A holder of an older version has no file."""
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
