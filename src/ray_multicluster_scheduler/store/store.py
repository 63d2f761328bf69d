"""The job store: the durable queue and history, with one class for each kind of thing that it holds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from ray_multicluster_scheduler.store.access import Access
from ray_multicluster_scheduler.store.backend import ChangeNotifier, Database
from ray_multicluster_scheduler.store.clusters import Clusters
from ray_multicluster_scheduler.store.history import History
from ray_multicluster_scheduler.store.jobs import Jobs
from ray_multicluster_scheduler.store.leases import Leases
from ray_multicluster_scheduler.store.locks import HolderLocks
from ray_multicluster_scheduler.store.packages import Packages, Uploads
from ray_multicluster_scheduler.store.queue import Queue
from ray_multicluster_scheduler.store.retention import Retention
from ray_multicluster_scheduler.store.schema.revision import read_store_id
from ray_multicluster_scheduler.store.sessions import Sessions
from ray_multicluster_scheduler.store.transactions import Changes, Transactions


class Store:
    """The durable queue and history. Safe for several threads, processes and machines at once.

    Open it with `open_at`, `open_store` or `open_memory_store`. Each method of its parts is one transaction,
    if it does not say otherwise.

    **Durable.** Everything that returns normally is on disk (fsynced). Calls are synchronous and short.
    **Order.** Writes happen one after the other. Numbers (`seq`, the `id` of an event) grow in the order in
    which they become visible, so a reader that continues after the last one it has seen skips nothing.
    **Fencing.** A write that takes an `epoch` happens only while that epoch holds the leader lease; otherwise
    `LeaseLost` is raised and nothing is written. Once a later epoch has begun, no earlier one writes.
    **Clocks.** Leases are measured by the clock of the store, whatever `now` says; a leader must also give up
    by its own monotonic clock. `now` in other calls is the time of the store too: see `ahead_s`.
    **Failures.** `StoreBusy`: nothing was written, try again. `StoreOutcomeUnknown`: the connection broke off
    during the commit; repeat with the same ids, or read again what there is.
    """

    def __init__(
        self,
        database: Database,
        notifier: ChangeNotifier,
        holders: HolderLocks,
        *,
        closing: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        """`closing` is the context in which the database is closed."""
        self._database = database
        self._closing = closing
        transactions = self._transactions = Transactions(database, notifier)
        self.jobs = Jobs(transactions)
        #: The queue as the leader reads it.
        self.queue = Queue(transactions)
        #: Events, attempts and logs.
        self.history = History(transactions)
        self.leases = Leases(transactions, holders)
        #: Drain marks, snapshots, and why jobs wait.
        self.clusters = Clusters(transactions, self.leases)
        #: Tokens and the audit trail.
        self.access = Access(transactions)
        #: Ray Client sessions.
        self.sessions = Sessions(transactions)
        #: Packages that are kept in the store. Their size does not count when the history is pruned.
        self.packages = Packages(transactions)
        #: Which user has uploaded which package.
        self.uploads = Uploads(transactions)
        self.retention = Retention(transactions, database)
        #: To wait for what other threads and processes commit.
        self.changes = Changes(transactions, notifier)
        with transactions.read() as tx:
            #: Identity of this store, made once when it was created. Our jobs carry it as their origin.
            self.store_id = read_store_id(tx)

    @property
    def ahead_s(self) -> float:
        """Seconds to add to the time of this machine to get that of the store, as far as is known."""
        return self._database.ahead_s

    def tell_times(self, took: Callable[[str, float], None]) -> None:
        """Call `took` with the duration of each "read", "write" and "commit", in the thread that did it."""
        self._database.took = took

    def close(self) -> None:
        """Release files and connections. Waiting threads are woken and get a `StoreError`."""
        self.changes.close()
        self.leases.close()
        with self._closing():
            self._database.close()
        self.changes.wake()  # subscribers look at the store and get the error
