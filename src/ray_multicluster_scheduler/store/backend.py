"""What a database has to provide for a store. The operations are the same for every database.

`store/sqlite` implements these protocols with files on a local disk, `store/postgres` with a server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from sqlalchemy import Connection, Table

from ray_multicluster_scheduler.model.retention import Space


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


class ChangeNotifier(Protocol):
    """Tells threads and processes that share a store when somebody has committed a change."""

    def listen(self) -> int:
        """Receive the notifications of other processes from now on; return how many came so far.

        Read the store after this call, not before it: then no change is missed.
        """

    def wait(self, received: int, *, timeout_s: float) -> None:
        """Block until more than `received` notifications have come, or the time is over."""

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` for each notification, from any thread; returns a function that ends this."""

    def notify_in(self, tx: Connection) -> None:
        """Prepare a notification in the transaction that changes something."""

    def notify(self) -> None:
        """Notify all threads and processes: this process has committed a change."""

    def notify_here(self) -> None:
        """Notify this process only."""

    def close(self) -> None:
        """Stop receiving, and wake all waiting threads."""


class HolderLiveness(Protocol):
    """Knows which holders of the leader lease are still alive."""

    def announce(self, holder: str) -> None:
        """Show that this holder is alive, until `withdraw` or until this process ends."""

    def withdraw(self, holder: str) -> None:
        """Stop showing that this holder is alive."""

    def is_dead(self, holder: str) -> bool:
        """Tell whether a holder has certainly ended. False if that is not known."""

    def tidy(self) -> None:
        """Remove what dead holders have left behind."""

    def close(self) -> None:
        """Withdraw all holders of this process."""
