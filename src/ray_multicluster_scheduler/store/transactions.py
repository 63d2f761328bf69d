"""The transactions of a store: checks before each write, and a notification after it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sqlalchemy import Connection

from ray_multicluster_scheduler.model.access import AuditEntry
from ray_multicluster_scheduler.store.backend import ChangeNotifier, Database
from ray_multicluster_scheduler.store.operations import audit_trail, change_counter, leases
from ray_multicluster_scheduler.store.schema.revision import require_current


class Transactions:
    """Opens transactions on a database."""

    def __init__(self, database: Database, notifier: ChangeNotifier) -> None:
        self._database = database
        self._notifier = notifier

    def read(self) -> contextlib.AbstractContextManager[Connection]:
        """Open a transaction that sees one consistent moment of the store."""
        return self._database.read()

    @contextlib.contextmanager
    def write(
        self, *, epoch: int | None = None, notify: bool = True, audit: AuditEntry | None = None
    ) -> Iterator[Connection]:
        """Open a transaction that writes, with its audit entry; `LeaseLost` if `epoch` no longer leads.

        With `notify`, waiting threads and processes are woken after the commit.
        """
        with self._database.write() as tx:
            require_current(tx)
            if epoch is not None:
                leases.require(tx, epoch)
            yield tx
            if audit is not None:
                audit_trail.write_audit(tx, [audit])
            if notify:
                self.count_change(tx)
        if notify:
            self.notify()

    def count_change(self, tx: Connection) -> None:
        """Count a transaction as a change that others wait for."""
        change_counter.count_change(tx)
        self._notifier.notify_in(tx)

    def notify(self) -> None:
        """Wake waiting threads and processes after the commit of a change."""
        self._notifier.notify()

    def time(self, tx: Connection, own: float) -> float:
        """Return the time by which leases are measured. `own` is that of this machine."""
        return self._database.time(tx, own)
