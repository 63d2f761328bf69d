"""The directory of a store: private to its user, marked with its database's identity, in use or not."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.store.sqlite.file_locks import FileLock, is_held

DATABASE = "jobs.db"
MARKER = "store.id"
_OPENING = "open.lock"
_IN_USE = "in-use.lock"


#: What to do when a file of `log_files` was removed.
SAVE_LOG = (
    "Stop all programs and raymc commands that use it, which writes what they still know into the database, "
    "then start again; let no clean-up job remove files there"
)


def make_private_directory(directory: Path) -> None:
    """Make the directory if need be, and close it to other users: jobs have secrets in their environment."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = directory.stat().st_mode
    if mode & stat.S_IWOTH:  # such as /tmp: closing it would harm others
        raise StoreError(
            f"{directory} is open to all users of this machine; keep jobs in a directory of yours"
        )
    if mode & 0o077:
        directory.chmod(0o700)


def make_private_file(path: Path) -> None:
    """Make the file if need be, readable by its user alone. SQLite gives its -wal and -shm the same mode."""
    # A database that is there is not even opened: closing it would take the locks of this process on it from
    # a connection of SQLite's, and the next process that closes the store would remove its log.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)


@contextlib.contextmanager
def opening(directory: Path) -> Iterator[None]:
    """Let one process at a time open or close the store, so that two cannot both create it."""
    lock = FileLock(directory / _OPENING)
    try:
        yield
    finally:
        lock.release()


def enter(directory: Path) -> FileLock:
    """Say that the store is in use, from now until the lock is released; call it while `opening`.

    Who uses it has SQLite's log open: if that is missing, it was removed, and is full of jobs that a second
    one would not see and would write over.
    """
    in_use = directory / _IN_USE
    for path in log_files(directory / DATABASE):
        if not path.exists() and is_held(in_use, shared=True):
            raise StoreError(f"{path} was removed while the job store is in use. {SAVE_LOG}")
    return FileLock(in_use, shared=True)


@contextlib.contextmanager
def leaving(directory: Path, in_use: FileLock) -> Iterator[None]:
    """Close the store in here: whoever opens it next finds it either in use or closed."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # the directory is gone: so is whoever would open it
            stack.enter_context(opening(directory))
        # Released before `opening` is: another process would find the store in use, but without its log.
        stack.callback(in_use.release)
        yield


def log_files(database: Path) -> tuple[Path, Path]:
    """Return SQLite's own files beside a database: they are there from opening to closing it."""
    return database.with_name(f"{database.name}-wal"), database.with_name(f"{database.name}-shm")


def read_marker(directory: Path) -> str | None:
    """Return the identity that this directory expects of its database; None: none was ever here."""
    with contextlib.suppress(FileNotFoundError):
        return (directory / MARKER).read_text().strip()
    return None


def write_marker(directory: Path, store_id: str) -> None:
    """Write the identity so that it is there completely or not at all, and stays after a power cut."""
    draft = directory / f"{MARKER}.new"
    draft.unlink(missing_ok=True)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, f"{store_id}\n".encode())
        os.fsync(file)
    finally:
        os.close(file)
    draft.replace(directory / MARKER)
    _sync_directory(directory)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
