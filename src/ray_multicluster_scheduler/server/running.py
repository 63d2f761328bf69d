"""Which servers of a configuration run on this machine. Each holds a lock for as long as it lives."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def announced(directory: Path) -> Iterator[None]:
    """Let this process be found as a server while the block runs."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = directory / f"{_prefix()}{os.getpid()}.lock"
    with _locked(path):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _locked(path: Path) -> IO[str]:
    """Create and lock a file. Before it is locked, `running_servers` may remove it as one that was left."""
    while True:
        file = path.open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
            return file
        file.close()


def running_servers(directory: Path) -> list[int]:
    """Return the process ids of the servers here. A file that nobody locks is left of one that was killed."""
    found = []
    for path in sorted(directory.glob(f"{_prefix()}*.lock")):
        with path.open("r") as file:
            if _is_free(file):
                path.unlink(missing_ok=True)
            else:
                found.append(int(path.stem.removeprefix(_prefix())))
    return found


def _is_free(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _prefix() -> str:
    """Name the machine as well: the directory may be one that several share."""
    return f"server-{socket.gethostname()}-"
