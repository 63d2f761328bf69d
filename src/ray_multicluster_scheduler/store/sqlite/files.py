"""The directory of a store: private to its user, marked with the identity of its database, and locked.

Without SQLAlchemy: its import would take too long for shell completion, which reads `newest_jobs` here.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.store.locks import FileLock, is_held

DATABASE = "jobs.db"
MARKER = "store.id"
_OPENING_LOCK = "open.lock"
_IN_USE_LOCK = "in-use.lock"

_NEWEST = 'SELECT submission_id, state, "group" FROM jobs ORDER BY seq DESC LIMIT ?'
#: Completion must not wait longer than this.
_BUSY_S = 0.2

#: What to do if a file of `wal_files` was removed.
HOW_TO_SAVE_WAL = (
    "Stop all programs and raymc commands that use it, which writes what they still know into the database, "
    "then start again; let no clean-up job remove files there"
)


def make_private_directory(directory: Path) -> None:
    """Make the directory if it is missing, and close it to other users: environments of jobs hold secrets."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = directory.stat().st_mode
    if mode & stat.S_IWOTH:  # such as /tmp: closing it would harm other users
        raise StoreError(
            f"{directory} is open to all users of this machine; keep jobs in a directory of yours"
        )
    if mode & 0o077:
        directory.chmod(0o700)


def make_private_file(path: Path) -> None:
    """Make the file if it is missing, readable by its user only. SQLite gives -wal and -shm the same mode."""
    # An existing database is not opened: closing the file would release all locks that this process holds on
    # it through SQLite, and the next process that closes the store would remove the write-ahead log.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)


@contextlib.contextmanager
def opening(directory: Path, *, timeout_s: float | None = None) -> Iterator[None]:
    """Let only one process at a time open or close the store, so that two cannot both create it."""
    lock = FileLock(directory / _OPENING_LOCK, timeout_s=timeout_s)
    try:
        yield
    finally:
        lock.release()


def enter(directory: Path) -> FileLock:
    """Mark the store as in use until the returned lock is released; call it inside `opening`.

    Every process that uses the store has the write-ahead log open. If the store is in use and a file of the
    log is missing, somebody has removed it. It may hold jobs that a new log would hide and overwrite.
    """
    in_use = directory / _IN_USE_LOCK
    for path in wal_files(directory / DATABASE):
        if not path.exists() and is_held(in_use, shared=True):
            raise StoreError(f"{path} was removed while the job store is in use. {HOW_TO_SAVE_WAL}")
    return FileLock(in_use, shared=True)


@contextlib.contextmanager
def leaving(directory: Path, in_use: FileLock) -> Iterator[None]:
    """Close the store inside this context. The next process finds it either in use or closed."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # the directory is gone, so nobody can open it
            stack.enter_context(opening(directory))
        # Released before `opening`. Otherwise another process could find the store in use without its log.
        stack.callback(in_use.release)
        yield


def wal_files(database: Path) -> tuple[Path, Path]:
    """Return the files of the write-ahead log. They exist as long as the database is open."""
    return database.with_name(f"{database.name}-wal"), database.with_name(f"{database.name}-shm")


def read_marker(directory: Path) -> str | None:
    """Return the identity of the database that belongs here; None: there was never one."""
    with contextlib.suppress(FileNotFoundError):
        return (directory / MARKER).read_text().strip()
    return None


def write_marker(directory: Path, store_id: str) -> None:
    """Write the identity atomically, so that it also survives a power cut."""
    draft = directory / f"{MARKER}.new"
    draft.unlink(missing_ok=True)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, f"{store_id}\n".encode())
        os.fsync(file)
    finally:
        os.close(file)
    draft.replace(directory / MARKER)
    sync(directory)


def sync(path: Path) -> None:
    """Write a file, or the names in a directory, to the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def newest_jobs(directory: Path, *, limit: int) -> list[tuple[str, str, str | None]]:
    """Return id, state and group of the newest jobs; empty if there is no store or it cannot be read."""
    path = directory / DATABASE
    try:
        opened = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_BUSY_S)
        with contextlib.closing(opened) as database:
            return database.execute(_NEWEST, (limit,)).fetchall()
    except sqlite3.Error:
        return []
