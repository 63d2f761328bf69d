"""Whether the holder of the lease still lives.

It keeps a file of its own locked for as long as it holds the lease, and the kernel lets go of the lock when
its process ends, however it ends. So nobody waits for a dead process, and nobody is told that it leads.
Where files cannot be locked nothing is known, and the time of the lease decides alone.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from urllib.parse import quote

from ray_multicluster_scheduler.store.sqlite.file_locks import FileLock, is_held

_SUFFIX = ".lock"


class HolderLocks:
    """The locks of this process, and a look at those of others. Without a folder nothing is ever known."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._locks: dict[str, FileLock] = {}

    def announce(self, holder: str) -> None:
        """Lock the file of a holder: from now on it lives until `withdraw`, or until this process ends."""
        if self._folder is None or holder in self._locks:
            return
        with contextlib.suppress(OSError):  # then nothing is known of it
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._locks[holder] = FileLock(_path(self._folder, holder))

    def withdraw(self, holder: str) -> None:
        """Let go of the lock. The file stays: a lease that could not be given up is free all the same."""
        lock = self._locks.pop(holder, None)
        if lock is not None:
            lock.release()

    def is_dead(self, holder: str) -> bool:
        """Tell whether a holder has ended for certain; one of an older version has no file."""
        return self._folder is not None and is_held(_path(self._folder, holder)) is False

    def tidy(self) -> None:
        """Remove the files of those that have ended. Nobody may ask for one of them any more."""
        if self._folder is None:
            return
        with contextlib.suppress(OSError):
            for path in self._folder.glob(f"*{_SUFFIX}"):
                if is_held(path) is False:
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of everything."""
        for holder in list(self._locks):
            self.withdraw(holder)


def _path(folder: Path, holder: str) -> Path:
    return folder / f"{quote(holder, safe='')}{_SUFFIX}"
