"""The transactions of a store: what each write checks and leaves behind, and how others hear of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields

from sqlalchemy import Connection, insert, literal_column, select, update

from ray_multicluster_scheduler.errors import LeaseLost
from ray_multicluster_scheduler.model.access import AuditEntry
from ray_multicluster_scheduler.model.job import Lease
from ray_multicluster_scheduler.store.backend import ChangeNotifier, Database
from ray_multicluster_scheduler.store.schema.prepared import Fixed, Prepared
from ray_multicluster_scheduler.store.schema.revision import require_current
from ray_multicluster_scheduler.store.schema.rows import lease_from
from ray_multicluster_scheduler.store.schema.tables import audit_trail, lease, meta

_LEASE = Fixed(select(lease.c.holder, lease.c.epoch, lease.c.expires_at))
_CHANGES = Fixed(select(meta.c.changes))
_COUNT_CHANGE = Fixed(update(meta).values(changes=meta.c.changes + literal_column("1")))
_WRITE_AUDIT = Prepared(insert(audit_trail))
#: The database assigns the id.
_AUDIT_FIELDS = tuple(field.name for field in fields(AuditEntry) if field.name != "id")


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
                _require_epoch(tx, epoch)
            yield tx
            if audit is not None:
                write_audit(tx, [audit])
            if notify:
                self.count_change(tx)
        if notify:
            self.notify()

    def count_change(self, tx: Connection) -> None:
        """Count a transaction as a change that others wait for."""
        count_change(tx)
        self._notifier.notify_in(tx)

    def notify(self) -> None:
        """Wake waiting threads and processes after the commit of a change."""
        self._notifier.notify()

    def time(self, tx: Connection, own: float) -> float:
        """Return the time by which leases are measured. `own` is that of this machine."""
        return self._database.time(tx, own)


class Changes:
    """What any process commits to the store: a counter in it, which is exact, and prompt notifications."""

    def __init__(self, transactions: Transactions, notifier: ChangeNotifier) -> None:
        self._transactions = transactions
        self._notifier = notifier

    def wait(self, seen: int, *, timeout_s: float) -> int:
        """Block until any process commits after `seen`, or until the time-out.

        Returns the newest mark; pass it as `seen` next time. It sleeps and does not busy-wait. Snapshots and
        lease renewals do not count.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            received = self._notifier.listen()
            with self._transactions.read() as tx:
                changes = read_changes(tx)
            left = deadline - time.monotonic()
            if changes > seen or left <= 0:
                return changes
            self._notifier.wait(received, timeout_s=left)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each commit of any process; returns a function that ends this.

        It is called from any thread and must return at once, as `loop.call_soon_threadsafe(event.set)` does.
        """
        return self._notifier.subscribe(callback)

    def close(self) -> None:
        """Stop receiving notifications, and wake all waiting threads."""
        self._notifier.close()

    def wake(self) -> None:
        """Wake all waiting threads and subscribers of this process."""
        self._notifier.notify_here()


def read_changes(tx: Connection) -> int:
    """Return how many commits there were that a waiting process may care about."""
    changes: int = _CHANGES.run(tx).scalar_one()
    return changes


def count_change(tx: Connection) -> None:
    """Count this transaction as a change."""
    _COUNT_CHANGE.run(tx)


def write_audit(tx: Connection, entries: Sequence[AuditEntry]) -> None:
    """Write entries of the audit trail in the transaction that they are about."""
    _WRITE_AUDIT.run(tx, [{name: getattr(entry, name) for name in _AUDIT_FIELDS} for entry in entries])


def read_lease(tx: Connection) -> Lease | None:
    """Return the lease as it was written last, be it over or not; None: nobody holds it."""
    return lease_from(_LEASE.run(tx).one())


def lease_lost(tx: Connection, epoch: int) -> LeaseLost:
    """Return the error for a leader whose epoch is over."""
    current = read_lease(tx)
    now_led_by = (
        "nobody leads now" if current is None else f"{current.holder!r} leads now with epoch {current.epoch}"
    )
    return LeaseLost(f"the leader lease with epoch {epoch} is over: {now_led_by}; nothing was written")


def _require_epoch(tx: Connection, epoch: int) -> None:
    """Raise `LeaseLost` unless this epoch holds the lease. An expired lease that nobody took still counts."""
    current = read_lease(tx)
    if current is None or current.epoch != epoch:
        raise lease_lost(tx, epoch)
