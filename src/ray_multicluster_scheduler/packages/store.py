"""The packages that jobs refer to, one file each, named by content.

A job may wait for days and then go to any cluster, and a cluster forgets a package ten minutes after its last
use. So packages stay here until no open job has needed them for a while. Several processes may share one
directory.

Where schedulers on several machines work together, they share packages in another place
(`SharedPackages`). Each package is put there before a job can refer to it, and the directory is where this
machine packs, and a cache: what is missing is fetched, what was not used for long is removed.
"""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO

from ray_multicluster_scheduler.errors import StoreBusy, StoreError
from ray_multicluster_scheduler.packages.pack import (
    MAX_BYTES,
    Packed,
    Progress,
    copy_archive,
    pack_tree,
    packed_as,
)
from ray_multicluster_scheduler.packages.shared_packages import SharedPackages, is_name
from ray_multicluster_scheduler.packages.tree import RAYIGNORE, Source, list_tree

log = logging.getLogger(__name__)

#: Some file systems store times in steps of up to two seconds. A tree that changed so shortly before it was
#: listed may change again unnoticed, so its fingerprint is not trusted.
COARSEST_CLOCK_S = 2.0
#: A package stays this long after it was last needed or asked for: for the next job from the same directory,
#: and for a job that failed on Friday and is repeated on Monday.
KEEP_S = 3 * 86_400.0
#: Between two looks at which copies of shared packages can go.
EVICT_EVERY_S = 3600.0
#: The lock of the directory is held for moments only.
LOCK_WAIT_S = 10.0

_LOCK = ".lock"
_TEMPORARY = ".tmp-"
#: The folder of known trees: one file for each fingerprint, which holds the name of the package.
_KNOWN_TREES = "known"


class PackageStore:
    """Package files in one directory, readable by its owner only, and perhaps in a shared place too."""

    def __init__(
        self,
        directory: Path,
        *,
        shared: SharedPackages | None = None,
        max_bytes: int = MAX_BYTES,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory
        self._shared = shared
        #: Held while a package is fetched, so that threads that need the same one fetch it once.
        self._fetching = threading.Lock()
        self._evict_at = 0.0
        self._max_bytes = max_bytes
        self._now = now
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)
        (directory / _KNOWN_TREES).mkdir(mode=0o700, exist_ok=True)
        # A process that is suspended with the lock does not keep this one from starting.
        with suppress(StoreBusy), self._locked():
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
            path = self._here(name)
            if path is not None and path.stat().st_mtime < self._now() - unused_for_s:
                path.unlink()
        if self._shared is not None:
            self._shared.remove(name, unused_for_s=unused_for_s)

    def path(self, name: str) -> Path | None:
        """Return the file of a package, or None when it is not kept. It may have to be fetched first."""
        path = self._here(name)
        if self._shared is None or not is_name(name):
            return path
        if path is None:
            with self._fetching:
                path = self._here(name) or self._fetch(name, self._shared)
        return path

    def ask_for(self, name: str) -> bool:
        """Tell whether a package is kept, and keep it for a while, because a job is about to use it.

        It need not be on this machine. One that is only on this machine is shared first.
        """
        with self._locked():
            path = self._here(name)
            if path is not None:
                self._touch(path)
        if self._shared is None:
            return path is not None
        if self._shared.touch(name):
            return True
        if path is not None:
            self._shared.put(name, path)
        return path is not None

    def unused(self, *, for_s: float) -> tuple[str, ...]:
        """Return the packages here that were not requested in this time. Open jobs may still need them."""
        oldest = self._now() - for_s
        return tuple(
            sorted(
                path.name
                for path in self._directory.iterdir()
                if is_name(path.name) and path.stat().st_mtime < oldest
            )
        )

    def may_collect(self, *, for_s: float) -> bool:
        """Tell whether `collect` may find something to do: packages not used in this time, or not shared."""
        if self.unused(for_s=for_s):
            return True
        if self._shared is None:
            return False
        last_used = self._shared.last_used()
        oldest = self._now() - for_s
        return any(at < oldest for at in last_used.values()) or any(
            is_name(path.name) and path.name not in last_used for path in self._directory.iterdir()
        )

    def collect(self, keep: Collection[str], *, older_than_s: float) -> tuple[str, ...]:
        """Remove packages that were last asked for, or in `keep`, more than `older_than_s` ago.

        The age protects a job that is being submitted: its package arrives before the job is in the store. It
        also allows an ended job to be repeated for a while. Returns what was removed here or where it is
        shared.
        """
        removed = set() if self._shared is None else self._collect_shared(self._shared, keep, older_than_s)
        with self._locked():
            for path in filter(None, map(self._here, keep)):
                self._touch(path)
            for name in self.unused(for_s=older_than_s):
                (self._directory / name).unlink()
                removed.add(name)
            for known in (self._directory / _KNOWN_TREES).iterdir():
                if self._here(known.read_text()) is None:
                    known.unlink()
        return tuple(sorted(removed))

    def _collect_shared(self, shared: SharedPackages, keep: Collection[str], older_than_s: float) -> set[str]:
        for name in keep:
            # This also shares what was packed before there was a shared place.
            self.ask_for(name)
        oldest = self._now() - older_than_s
        old = [name for name, used_at in shared.last_used().items() if used_at < oldest]
        removed = {name for name in old if shared.remove(name, unused_for_s=older_than_s)}
        shared.remove_leftovers()
        return removed

    def _here(self, name: str) -> Path | None:
        """Return the file of a package in the directory."""
        path = self._directory / name
        return path if is_name(name) and path.is_file() else None

    def _fetch(self, name: str, shared: SharedPackages) -> Path | None:
        """Copy a package from the shared place; None: it is not there, or not what its name says."""
        for _ in range(2):  # what was damaged on its way may be right the second time
            with self._scratch() as file:
                if not shared.fetch(name, file):
                    return None
                if packed_as(name, file).name == name:
                    path = self._place(file, name)
                    self._evict(shared)
                    return path
        log.warning("package %s was damaged where it is shared, and was removed there", name)
        shared.remove(name, unused_for_s=0.0)
        return None

    def _evict(self, shared: SharedPackages) -> None:
        """Remove copies that were not used for long. What is not shared stays: `collect` decides on it."""
        if self._now() < self._evict_at:
            return
        self._evict_at = self._now() + EVICT_EVERY_S
        if not self.unused(for_s=KEEP_S):
            return
        elsewhere = shared.last_used()
        with self._locked():
            for name in self.unused(for_s=KEEP_S):
                if name in elsewhere:
                    (self._directory / name).unlink()

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
        """Keep a finished temporary file, here and where packages are shared."""
        path = self._place(file, packed.name)
        if self._shared is not None:
            self._shared.put(packed.name, path)
            self._evict(self._shared)

    def _place(self, file: IO[bytes], name: str) -> Path:
        """Give a finished temporary file its name, so that it also survives a power cut."""
        file.flush()
        os.fsync(file.fileno())
        with self._locked():
            target = self._directory / name
            Path(file.name).replace(target)
            self._touch(target)
            directory = os.open(self._directory, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        return target

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
                if _try_lock(file):
                    path.unlink()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the directory against other threads and processes."""
        with (self._directory / _LOCK).open("ab") as file:
            ends_at = time.monotonic() + LOCK_WAIT_S
            while not _try_lock(file):
                if time.monotonic() >= ends_at:
                    raise StoreBusy(
                        f"{self._directory}: another process has held its lock for {LOCK_WAIT_S:g} s; "
                        "it may be suspended"
                    )
                time.sleep(0.01)
            yield


def _try_lock(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
