"""The places where schedulers on several machines share packages: the job store's database, or a URL."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from ray_multicluster_scheduler.config.installed import how_to_install
from ray_multicluster_scheduler.errors import InvalidRequest, StoreError

if TYPE_CHECKING:
    from ray_multicluster_scheduler.store import Store
    from ray_multicluster_scheduler.store.packages import Packages


#: Allowed names of packages: never with a slash or a leading dot, because they become paths.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+!-]*\.(zip|whl|tar\.gz|tar\.xz)", re.ASCII)
#: Each use within this time is noted only once: a hundred jobs a second may use the same package.
NOTED_EVERY_S = 600.0
#: What was begun so long ago, and not written to since, will never be finished.
HALF_WRITTEN_S = 86_400.0


class SharedPackages(Protocol):
    """Packages by name. Safe for several threads, processes and machines at once.

    A package is there as a whole or not at all, and its content never changes. Errors of the place are
    `StoreError`s. Times of use may be up to `NOTED_EVERY_S` too early.
    """

    def put(self, name: str, path: Path) -> None:
        """Keep a copy of a file; it is durable when this returns. A package that is there is only touched."""

    def fetch(self, name: str, into: IO[bytes]) -> bool:
        """Write a package to a file; False: it is not there, and the file may hold a part of it."""

    def touch(self, name: str) -> bool:
        """Tell whether a package is there, and note that it is used."""

    def last_used(self) -> dict[str, float]:
        """Return all packages, each with the time of its last use."""

    def remove(self, name: str, *, unused_for_s: float) -> bool:
        """Remove a package unless it was used in this time; tell whether it was removed."""

    def remove_leftovers(self) -> None:
        """Remove what writers that have ended left unfinished."""


def is_name(name: str) -> bool:
    """Tell whether this may be the name of a package."""
    return NAME.fullmatch(name) is not None


def require_name(name: str) -> None:
    """Refuse a name that no package can have."""
    if not is_name(name):
        raise InvalidRequest(f"{name[:200]!r} is not the name of a package")


#: Written or read in one transaction.
CHUNK_BYTES = 2**20
#: Deleted in one transaction.
CHUNKS_AT_ONCE = 8
LONGEST_PAUSE_S = 0.05


class DatabasePackages:
    """`SharedPackages` in the database of the job store: every scheduler on this store has them.

    Writers of a database take turns, and the leader is one of them. So packages are written in short
    transactions, with pauses in which others get their turn.
    """

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


BLOCK_BYTES = 2**20
_USED = "used"
#: Followed by the second in which writing began, and by something unique.
_TEMPORARY = ".tmp-"


class FsspecPackages:
    """`SharedPackages` in a directory or bucket that several machines reach, by any URL that fsspec knows.

    Next to the packages is a folder `used`, with the time of the last use of each package in a file with its
    name: many of these places neither let a time of change be set nor tell it.
    """

    def __init__(self, url: str, *, now: Callable[[], float] = time.time) -> None:
        self._url = url
        self._now = now
        self._fs, root = _open(url)
        self._root = root.rstrip("/")

    def put(self, name: str, path: Path) -> None:
        """Keep a copy of a file; it is durable when this returns. A package that is there is only touched."""
        require_name(name)
        if self.touch(name):
            return
        temporary = self._at(f"{_TEMPORARY}{int(self._now())}-{uuid4().hex}")
        with self._translated_errors():
            self._fs.makedirs(self._at(_USED), exist_ok=True)
            with ExitStack() as undo:
                undo.callback(self._remove_file, temporary)
                with path.open("rb") as source, self._fs.open(temporary, "wb") as target:
                    shutil.copyfileobj(source, target, BLOCK_BYTES)
                    _flush(target)
                self._note_use(name)
                self._rename(temporary, self._at(name))
                undo.pop_all()

    def fetch(self, name: str, into: IO[bytes]) -> bool:
        """Write a package to a file; False: it is not there."""
        if not is_name(name):
            return False
        with self._translated_errors():
            self._fs.invalidate_cache()
            try:
                with self._fs.open(self._at(name), "rb") as source:
                    shutil.copyfileobj(source, into, BLOCK_BYTES)
            except FileNotFoundError:
                return False
        return True

    def touch(self, name: str) -> bool:
        """Tell whether a package is there, and note that it is used."""
        with self._translated_errors():
            if not is_name(name) or not self._is_there(name):
                return False
            used_at = self._read_use(name)
            if used_at is not None and used_at > self._now() - NOTED_EVERY_S:
                return True
            self._note_use(name)
            return self._is_there(name)  # it may just have been removed as unused

    def last_used(self) -> dict[str, float]:
        """Return all packages, each with the time of its last use."""
        with self._translated_errors():
            return {name: self._last_use(name) for name in self._list() if is_name(name)}

    def remove(self, name: str, *, unused_for_s: float) -> bool:
        """Remove a package unless it was used in this time; tell whether it was removed."""
        with self._translated_errors():
            if not is_name(name) or not self._is_there(name):
                return False
            if self._last_use(name) > self._now() - unused_for_s:
                return False
            with suppress(FileNotFoundError):
                self._fs.rm_file(self._at(name))
                self._fs.rm_file(self._at(_USED, name))
            return True

    def remove_leftovers(self) -> None:
        """Remove what writers that have ended left unfinished."""
        with self._translated_errors():
            for name in self._list():
                begun_at = name.removeprefix(_TEMPORARY).partition("-")[0]
                if name.startswith(_TEMPORARY) and int(begun_at) < self._now() - HALF_WRITTEN_S:
                    self._remove_file(self._at(name))

    def _at(self, *parts: str) -> str:
        return "/".join((self._root, *parts))

    def _list(self) -> list[str]:
        self._fs.invalidate_cache()
        try:
            return [posixpath.basename(path) for path in self._fs.ls(self._root, detail=False)]
        except FileNotFoundError:  # nothing was kept here yet
            return []

    def _is_there(self, name: str) -> bool:
        self._fs.invalidate_cache()
        try:
            self._fs.info(self._at(name))  # `exists` would take any error for a "no"
        except FileNotFoundError:
            return False
        return True

    def _rename(self, source: str, target: str) -> None:
        try:
            self._fs.mv(source, target)
        except OSError:
            if not self._is_there(posixpath.basename(target)):
                raise
            # Another writer was first, and this place does not replace files. The content is the same.
            self._remove_file(source)

    def _remove_file(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm_file(path)

    def _note_use(self, name: str) -> None:
        with self._fs.open(self._at(_USED, name), "wb") as file:
            file.write(str(self._now()).encode())

    def _read_use(self, name: str) -> float | None:
        try:
            with self._fs.open(self._at(_USED, name), "rb") as file:
                return float(file.read())
        except (FileNotFoundError, ValueError):
            return None

    def _last_use(self, name: str) -> float:
        """Return the time of last use; if it is not known, or just being written, count from now."""
        used_at = self._read_use(name)
        if used_at is None:
            self._note_use(name)
            return self._now()
        return used_at

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as problem:  # each file system has errors of its own, which have nothing in common
            raise StoreError(
                f"packages at {self._url}: {problem or type(problem).__name__}; check that this machine can "
                "read and write there"
            ) from problem


def _open(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it."""
    protocol = url.partition("://")[0]
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - only who shares packages so needs it
    except ImportError as problem:
        raise InvalidRequest(
            f"`scheduler.packages: {url}` needs fsspec: {how_to_install('packages')}"
        ) from problem
    try:
        fs, root = url_to_fs(url)
    except (ImportError, ValueError) as problem:
        raise InvalidRequest(
            f"`scheduler.packages: {url}` cannot be used: {problem}. {protocol}:// may need a further Python "
            "package, as s3:// needs s3fs and gs:// needs gcsfs"
        ) from problem
    return fs, str(root)


def _flush(file: Any) -> None:
    """Wait until a local file is on the disk; other places are done when a file is closed."""
    file.flush()
    try:
        descriptor = file.fileno()
    except (AttributeError, OSError):
        return
    os.fsync(descriptor)


DATABASE = "database"


def shared_packages(place: str | None, store: Store) -> SharedPackages | None:
    """Return the shared place that the setting names; None: packages stay in a directory of this machine."""
    if place is None:
        # The default. A store in files is used by one machine only, so there is nobody to share with.
        return None
    return DatabasePackages(store.packages) if place == DATABASE else FsspecPackages(place)
