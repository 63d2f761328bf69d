"""What a database has to provide for a store. The rest of the store is the same for every database.

`store/sqlite` provides it with files on a local disk, `store/postgres` with a server.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

from sqlalchemy import Connection, Table

from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.model.storage import Space

#: How late a change is noticed at worst, when its notification got lost.
FALLBACK_POLL_S = 1.0


class Database(Protocol):
    """Connections, transactions and disk space. Safe for several threads; errors are `SchedulerError`s."""

    #: Seconds to add to the time of this machine to get that of the store, as far as is known.
    ahead_s: float
    #: Called with the duration of each "read", "write" (including the wait for other writers) and "commit".
    took: Callable[[str, float], None]

    def read(self) -> AbstractContextManager[Connection]:
        """Open a transaction that sees one consistent moment of the store."""

    def write(self) -> AbstractContextManager[Connection]:
        """Open a transaction that is serialized with all other writers and durable when it ends."""

    def hold(self) -> AbstractContextManager[Connection]:
        """Open a transaction like `write` that may last for long. Others wait, or are told to try again."""

    def damage(self, tx: Connection) -> Sequence[str]:
        """Look at the whole database; return what is damaged, as far as the database can tell."""

    def add_rows(self, tx: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows as fast as the database can. All have all columns; JSON is a text already."""

    def last_numbers(self, tx: Connection) -> dict[str, int]:
        """Return the last number that was given in each numbered table, be its row still there or not."""

    def continue_after(self, tx: Connection, numbers: Mapping[str, int]) -> None:
        """Let the next number in each of these tables be larger."""

    def time(self, tx: Connection, own: float) -> float:
        """Return the time by which leases are measured. `own` is that of this machine."""

    def used_bytes(self, tx: Connection) -> int:
        """Return how many bytes of the database hold data."""

    def space(self, tx: Connection) -> Space:
        """Return the size of the database, and how much of it holds data."""

    def can_shrink(self, tx: Connection) -> bool:
        """Tell whether `shrink` can return free space. If not, only `rewrite` can."""

    def shrink(self, tx: Connection, *, most_bytes: int) -> bool:
        """Return some free space to the file system; tell whether there is more to return."""

    def rewrite(self) -> None:
        """Write the whole database anew, without free space. Nobody can write in the meantime."""

    def flush(self) -> None:
        """Return to the file system what `shrink` has freed."""

    def close(self) -> None:
        """Close all connections; later calls raise `StoreError`."""


class ChangeNotifier(ABC):
    """Tells threads and processes that share a store when somebody has committed a change.

    This class counts notifications, wakes waiting threads and calls subscribers. Each database adds how
    notifications get to other processes.

    `read_changes` returns a number that differs after a change. It is read when no notification has come for
    `fallback_poll_s`, because notifications of other processes may get lost.
    """

    def __init__(self, read_changes: Callable[[], int], *, fallback_poll_s: float) -> None:
        self._read_changes = read_changes
        self._fallback_poll_s = fallback_poll_s
        self._condition = threading.Condition()
        self._received = 0
        self._callbacks: dict[object, Callable[[], None]] = {}
        self._closed = threading.Event()
        #: The last number of changes that was read.
        self._changes: int | None = None

    def listen(self) -> int:
        """Receive the notifications of other processes from now on; return how many came so far.

        Read the store after this call, not before it: then no change is missed.
        """
        with self._condition:
            return self._received

    def wait(self, received: int, *, timeout_s: float) -> None:
        """Block until more than `received` notifications have come, or the time is over."""
        with self._condition:
            self._condition.wait_for(lambda: self._received > received or self._closed.is_set(), timeout_s)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` for each notification, from any thread; returns a function that ends this.

        It must return at once, as `loop.call_soon_threadsafe(event.set)` does.
        """
        key = object()
        with self._condition:
            self._callbacks[key] = callback
        self.listen()
        return partial(self._unsubscribe, key)

    @abstractmethod
    def notify_in(self, tx: Connection) -> None:
        """Prepare a notification in the transaction that changes something."""

    @abstractmethod
    def notify(self) -> None:
        """Notify all threads and processes: this process has committed a change."""

    @abstractmethod
    def close(self) -> None:
        """Stop receiving, and wake all waiting threads."""

    def notify_here(self) -> None:
        """Notify this process only."""
        with self._condition:
            self._received += 1
            callbacks = tuple(self._callbacks.items())
            self._condition.notify_all()
        for key, callback in callbacks:
            try:
                callback()
            except RuntimeError:  # its event loop is closed; the commit that caused this must not fail
                self._unsubscribe(key)

    def _unsubscribe(self, key: object) -> None:
        with self._condition:
            self._callbacks.pop(key, None)

    def _notify_if_changed(self) -> None:
        """Look at the store itself, and notify this process if it has changed or cannot be read."""
        try:
            changes = self._read_changes()
        except StoreError:  # woken threads see the error
            self._changes = None
            self.notify_here()
            return
        if changes != self._changes:
            self._changes = changes
            self.notify_here()
