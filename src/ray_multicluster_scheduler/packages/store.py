"""The packages that jobs refer to, one file each, named by content.

A job may wait for days and then go to any cluster, and a cluster forgets a package ten minutes after its last
use. So packages stay here until no open job has needed them for a while. Several processes may share one
directory.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.packages.ignore import RAYIGNORE
from ray_multicluster_scheduler.packages.pack import (
    MAX_BYTES,
    Packed,
    Progress,
    copy_archive,
    pack_tree,
    packed_as,
)
from ray_multicluster_scheduler.packages.tree import Source, list_tree

#: Allowed names of packages: never with a slash or a leading dot, because they become paths.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+!-]*\.(zip|whl|tar\.gz|tar\.xz)", re.ASCII)
#: Some file systems store times in steps of up to two seconds. A tree that changed so shortly before it was
#: listed may change again unnoticed, so its fingerprint is not trusted.
COARSEST_CLOCK_S = 2.0
#: A package stays this long after it was last needed or asked for: for the next job from the same directory,
#: and for a job that failed on Friday and is repeated on Monday.
KEEP_S = 3 * 86_400.0

_LOCK = ".lock"
_TEMPORARY = ".tmp-"
#: The folder of known trees: one file for each fingerprint, which holds the name of the package.
_KNOWN_TREES = "known"


class PackageStore:
    """Package files in one directory, readable by its owner only."""

    def __init__(
        self, directory: Path, *, max_bytes: int = MAX_BYTES, now: Callable[[], float] = time.time
    ) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._now = now
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)
        (directory / _KNOWN_TREES).mkdir(mode=0o700, exist_ok=True)
        with self._locked():
            # Keeps this directory out of packages that are built from a parent directory.
            if not (directory / RAYIGNORE).exists():
                (directory / RAYIGNORE).write_text("*\n")
            self._remove_leftovers()

    def add_tree(self, source: Source, *, progress: Progress | None = None) -> str:
        """Pack a directory and return the package's name; a tree that has not changed is not packed again."""
        listed_at = self._now()
        tree = list_tree(source)
        fingerprint = tree.fingerprint
        name = self._package_of(fingerprint)
        if name is not None:
            return name
        with self._scratch() as file:
            packed = pack_tree(tree, file, max_bytes=self._max_bytes, progress=progress)
            self._keep(file, packed)
        if tree.changed_at < listed_at - COARSEST_CLOCK_S and list_tree(source).fingerprint == fingerprint:
            self._remember(fingerprint, packed.name)
        return packed.name

    def add_archive(self, path: Path) -> str:
        """Take a `.zip` or `.whl` as it is and return the package's name."""
        with self._scratch() as file:
            packed = copy_archive(path, file, max_bytes=self._max_bytes)
            self._keep(file, packed)
        return packed.name

    def receive(self) -> AbstractContextManager[IO[bytes]]:
        """Return a temporary file for an upload. It is removed afterwards unless `keep` took it."""
        return self._scratch()

    def keep(self, file: IO[bytes], name: str) -> Packed:
        """Keep a file of `receive` that was uploaded under this name. Nothing is unpacked."""
        packed = packed_as(name, file)
        self._keep(file, packed)
        return packed

    def remove(self, name: str, *, unused_for_s: float) -> None:
        """Remove a package that is no longer needed, unless it was used within `unused_for_s`."""
        with self._locked():
            path = self.path(name)
            if path is not None and path.stat().st_mtime < self._now() - unused_for_s:
                path.unlink()

    def path(self, name: str) -> Path | None:
        """Return the file of a package, or None when it is not here."""
        path = self._directory / name
        return path if NAME.fullmatch(name) and path.is_file() else None

    def ask_for(self, name: str) -> bool:
        """Tell whether a package is here, and keep it for a while, because a job is about to use it."""
        with self._locked():
            path = self.path(name)
            if path is not None:
                self._touch(path)
        return path is not None

    def unused(self, *, for_s: float) -> tuple[str, ...]:
        """Return the packages that were not requested in this time. Open jobs may still need them."""
        oldest = self._now() - for_s
        return tuple(
            sorted(
                path.name
                for path in self._directory.iterdir()
                if NAME.fullmatch(path.name) and path.stat().st_mtime < oldest
            )
        )

    def collect(self, keep: Collection[str], *, older_than_s: float) -> tuple[str, ...]:
        """Remove packages that were last asked for, or in `keep`, more than `older_than_s` ago.

        The age protects a job that is being submitted: its package arrives before the job is in the store. It
        also allows an ended job to be repeated for a while.
        """
        with self._locked():
            for path in filter(None, map(self.path, keep)):
                self._touch(path)
            removed = self.unused(for_s=older_than_s)
            for name in removed:
                (self._directory / name).unlink()
            for known in (self._directory / _KNOWN_TREES).iterdir():
                if self.path(known.read_text()) is None:
                    known.unlink()
        return removed

    def _package_of(self, fingerprint: str) -> str | None:
        try:
            name = (self._directory / _KNOWN_TREES / fingerprint).read_text()
        except FileNotFoundError:
            return None
        return name if self.ask_for(name) else None

    def _remember(self, fingerprint: str, name: str) -> None:
        with self._scratch() as file, self._locked():
            file.write(name.encode())
            file.flush()
            Path(file.name).replace(self._directory / _KNOWN_TREES / fingerprint)

    def _keep(self, file: IO[bytes], packed: Packed) -> None:
        """Give a finished temporary file its name, so that it also survives a power cut."""
        file.flush()
        os.fsync(file.fileno())
        with self._locked():
            target = self._directory / packed.name
            Path(file.name).replace(target)
            self._touch(target)
            directory = os.open(self._directory, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def _touch(self, path: Path) -> None:
        """Note that the package was asked for, which `collect` looks at."""
        now = self._now()
        os.utime(path, (now, now))

    @contextmanager
    def _scratch(self) -> Iterator[IO[bytes]]:
        """Yield a locked temporary file beside the packages; it is removed unless it was renamed."""
        try:
            with self._locked():
                file = tempfile.NamedTemporaryFile(dir=self._directory, prefix=_TEMPORARY, delete=False)  # noqa: SIM115
                fcntl.flock(file, fcntl.LOCK_EX)
            with file:
                try:
                    yield file
                finally:
                    Path(file.name).unlink(missing_ok=True)
        except OSError as problem:
            raise StoreError(
                f"{self._directory}: the package cannot be kept: {problem.strerror}; "
                "free some space or move RAY_MULTICLUSTER_HOME"
            ) from problem

    def _remove_leftovers(self) -> None:
        """Remove temporary files that are not locked: their writers have ended."""
        for path in self._directory.glob(f"{_TEMPORARY}*"):
            with path.open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                path.unlink()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the directory against other threads and processes."""
        with (self._directory / _LOCK).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
