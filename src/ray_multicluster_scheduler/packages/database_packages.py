"""Packages in the database of the job store: every scheduler on this store has them.

Writers of a database take turns, and the leader is one of them. So packages are written in short
transactions, with pauses in which others get their turn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.packages.shared_packages import (
    HALF_WRITTEN_S,
    NOTED_EVERY_S,
    is_name,
    require_name,
)

if TYPE_CHECKING:
    from ray_multicluster_scheduler.store.packages import Packages

#: Written or read in one transaction.
CHUNK_BYTES = 2**20
#: Deleted in one transaction.
CHUNKS_AT_ONCE = 8
LONGEST_PAUSE_S = 0.05


class DatabasePackages:
    """`SharedPackages` in the job store."""

    def __init__(self, chunks: Packages, *, now: Callable[[], float] = time.time) -> None:
        self._chunks = chunks
        self._now = now
        #: One writer per process: several at once would leave no pauses for others.
        self._writing = threading.Lock()

    def put(self, name: str, path: Path) -> None:
        """Keep a copy of a file; it is durable when this returns. A package that is there is only touched."""
        require_name(name)
        if self.touch(name):
            return
        with self._writing:
            if not self.touch(name):  # another thread may have written it meanwhile
                self._write(name, path)

    def fetch(self, name: str, into: IO[bytes]) -> bool:
        """Write a package to a file; False: it is not there, or was removed meanwhile."""
        package = self._chunks.find(name) if is_name(name) else None
        if package is None:
            return False
        for number in range(package.chunks):
            content = self._chunks.read_chunk(package.id, number)
            if content is None:
                return False
            into.write(content)
        return True

    def touch(self, name: str) -> bool:
        """Tell whether a package is there, and note that it is used."""
        package = self._chunks.find(name) if is_name(name) else None
        if package is None:
            return False
        now = self._now()
        return package.used_at > now - NOTED_EVERY_S or self._chunks.touch(name, now=now)

    def last_used(self) -> dict[str, float]:
        """Return all packages, each with the time of its last use."""
        return self._chunks.last_used()

    def remove(self, name: str, *, unused_for_s: float) -> bool:
        """Remove a package unless it was used in this time; tell whether it was removed."""
        removed = is_name(name) and self._chunks.remove(name, unused_since=self._now() - unused_for_s)
        if removed:
            self.remove_leftovers()
        return removed

    def remove_leftovers(self) -> None:
        """Remove what writers that have ended left unfinished."""
        more = True
        while more:
            began_at = time.monotonic()
            unused_since = self._now() - HALF_WRITTEN_S
            more = self._chunks.discard(unused_since=unused_since, limit=CHUNKS_AT_ONCE)
            _pause_after(began_at)

    def _write(self, name: str, path: Path) -> None:
        package = self._chunks.begin(now=self._now())
        with ExitStack() as undo:
            undo.callback(self._abandon, package)
            with path.open("rb") as file:
                while content := file.read(CHUNK_BYTES):
                    began_at = time.monotonic()
                    self._chunks.append(package, content, now=self._now())
                    _pause_after(began_at)
            self._chunks.finish(package, name, now=self._now())
            undo.pop_all()

    def _abandon(self, package: int) -> None:
        """Remove what was written so far: it may be what has filled the disk."""
        with suppress(StoreError):
            self._chunks.abandon(package)
            self.remove_leftovers()


def _pause_after(began_at: float) -> None:
    """Leave the database to others for as long as it was used."""
    time.sleep(min(LONGEST_PAUSE_S, time.monotonic() - began_at))
