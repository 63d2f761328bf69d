"""Keep SQLite safe in programs that fork: no connection may be open at that moment.

SQLite keeps in memory which locks its connections hold on a file. A forked child inherits this memory, but
not the locks. It may wait for ever for a writer that does not exist. Or it believes that it holds a lock, and
the parent removes the write-ahead log that the child uses. So connections are closed before a fork and opened
after it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from ray_multicluster_scheduler.store.sqlite import files

#: How long a fork waits for processes that open a store, and then for the transactions of other threads.
#: Most take milliseconds.
_FORK_WAIT_S = 10.0


class Connected(Protocol):
    """A database whose connections can be closed and opened again."""

    def disconnect(self) -> None:
        """Close all connections."""

    def reconnect(self) -> None:
        """Open the log again."""


class _Forks:
    """Keeps transactions and forks apart: any number of transactions at once, or one fork."""

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._changed = threading.Condition(threading.Lock())
        self._transactions = 0
        self._forking = False
        self._databases: weakref.WeakKeyDictionary[Connected, Path] = weakref.WeakKeyDictionary()
        self._open_locks = contextlib.ExitStack()

    def add(self, database: Connected, directory: Path) -> None:
        with self._changed:
            self._databases[database] = directory

    @contextlib.contextmanager
    def no_forks(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._forking)
            self._transactions += 1
        try:
            yield
        finally:
            with self._changed:
                self._transactions -= 1
                if self._forking:
                    self._changed.notify_all()

    def before(self) -> None:
        self._one_at_a_time.acquire()
        # These locks come first: a thread that opens a store holds one and needs transactions. While the
        # write-ahead log is closed, no process may open the store: it would take the log for removed.
        with self._changed:
            directories = set(self._databases.values())
        ends_at = time.monotonic() + _FORK_WAIT_S
        for directory in directories:
            left_s = max(0.0, ends_at - time.monotonic())
            try:
                self._open_locks.enter_context(files.opening(directory, timeout_s=left_s))
            except TimeoutError:
                return  # a process hangs while it opens the store, perhaps suspended: the log must stay open
            except OSError:  # the directory is gone
                continue
        with self._changed:
            self._forking = True
            if not self._changed.wait_for(lambda: self._transactions == 0, timeout=_FORK_WAIT_S):
                return  # a transaction hangs, or the fork happens inside one
            for database in list(self._databases):
                database.disconnect()

    def after_in_parent(self) -> None:
        try:
            with self._changed:
                self._forking = False
                self._changed.notify_all()
                for database in list(self._databases):
                    database.reconnect()
        finally:
            self._open_locks.close()
            self._one_at_a_time.release()


_forks = _Forks()


def reconnect_at_forks(database: Connected, directory: Path) -> None:
    """Close the connections of this database before every fork, and open them again after it."""
    _forks.add(database, directory)


def no_forks() -> contextlib.AbstractContextManager[None]:
    """Let no fork happen inside this context."""
    return _forks.no_forks()


def _before() -> None:
    _forks.before()


def _after_in_parent() -> None:
    _forks.after_in_parent()


def _after_in_child() -> None:
    # Locks and databases belong to the parent. `locks` closes its own files.
    global _forks  # noqa: PLW0603
    _inherited.append(_forks)
    _forks = _Forks()


#: Never garbage-collected: closing the inherited files would release the locks of the parent.
_inherited: list[_Forks] = []

os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
