"""A program that forks: SQLite must have nothing open at that moment.

SQLite keeps in memory what each file's connections have locked. A forked child inherits that memory, but not
the locks: it waits for ever for a writer that is not there, or believes to hold a lock that it does not have,
so that its parent removes the log under it. So connections are closed before a fork and opened after it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from ray_multicluster_scheduler.store.sqlite import database_files

#: How long a fork waits for the transactions of other threads. Most take milliseconds.
_PATIENCE_S = 10.0


class Connected(Protocol):
    """A database whose connections can be closed and opened again."""

    def disconnect(self) -> None:
        """Close all connections."""

    def reconnect(self) -> None:
        """Open the log again."""


class _Forks:
    """Keeps transactions and forks apart: any number of the first at once, or one of the second."""

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
    def kept_out(self) -> Iterator[None]:
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
        # First of all: a thread that opens a store has this lock and has transactions to do. And for as long
        # as the log is closed nobody may open the store, who would take it for removed.
        with self._changed:
            directories = set(self._databases.values())
        for directory in directories:
            with contextlib.suppress(OSError):
                self._open_locks.enter_context(database_files.opening(directory))
        with self._changed:
            self._forking = True
            if not self._changed.wait_for(lambda: self._transactions == 0, timeout=_PATIENCE_S):
                return  # a transaction that hangs, or the very one that forks
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


def hand_over(database: Connected, directory: Path) -> None:
    """Close and open this database's connections at every fork from now on."""
    _forks.add(database, directory)


def kept_out() -> contextlib.AbstractContextManager[None]:
    """Let no fork happen in here."""
    return _forks.kept_out()


def _before() -> None:
    _forks.before()


def _after_in_parent() -> None:
    _forks.after_in_parent()


def _after_in_child() -> None:
    # Locks and databases are the parent's; the file locks are closed by `locks`.
    global _forks  # noqa: PLW0603
    _inherited.append(_forks)
    _forks = _Forks()


#: Never collected: closing what the parent has open would take the parent's locks away.
_inherited: list[_Forks] = []

os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
