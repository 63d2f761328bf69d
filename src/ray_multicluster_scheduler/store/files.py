"""The directory of a store: private to its user, and marked with the identity of its database."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ray_multicluster_scheduler.errors import StoreError

DATABASE = "jobs.db"
MARKER = "store.id"
_LOCK = "open.lock"


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
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)


@contextlib.contextmanager
def opening(directory: Path) -> Iterator[None]:
    """Let one process at a time open the store, so that two cannot both create it."""
    lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


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
