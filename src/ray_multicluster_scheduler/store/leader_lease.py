"""The leader lease of a store, together with the liveness of its holders."""

from __future__ import annotations

from ray_multicluster_scheduler.model.job import Lease
from ray_multicluster_scheduler.store.backend import HolderLiveness
from ray_multicluster_scheduler.store.operations import leases
from ray_multicluster_scheduler.store.transactions import Transactions


class LeaderLease:
    """Takes, renews and releases the lease. Each method is one transaction."""

    def __init__(self, transactions: Transactions, liveness: HolderLiveness) -> None:
        self._transactions = transactions
        self._liveness = liveness

    def acquire(self, holder: str, *, ttl_s: float, now: float) -> Lease | None:
        """Take the lease if it is free, expired, held by a dead process or already ours."""
        self._liveness.announce(holder)  # before the row is written: a new leader must not look dead
        lease = None
        try:
            with self._transactions.write(notify=False) as tx:
                lease = leases.acquire(
                    tx,
                    holder,
                    ttl_s=ttl_s,
                    now=self._transactions.time(tx, now),
                    is_dead=self._liveness.is_dead,
                )
        finally:
            if lease is None:
                self._liveness.withdraw(holder)
        if lease is not None:
            self._liveness.tidy()
        return lease

    def renew(self, lease: Lease, *, ttl_s: float, now: float) -> Lease:
        """Extend the lease, or raise `LeaseLost`."""
        with self._transactions.write(notify=False) as tx:
            return leases.renew(tx, lease, ttl_s=ttl_s, now=self._transactions.time(tx, now))

    def release(self, lease: Lease) -> None:
        """Give the lease up if it is still ours, and wake the processes that wait for it."""
        try:
            with self._transactions.write() as tx:
                leases.release(tx, lease)
        finally:
            self._liveness.withdraw(lease.holder)

    def current(self, *, now: float) -> Lease | None:
        """Return the lease of the current leader, if there is one."""
        with self._transactions.read() as tx:
            now = self._transactions.time(tx, now)
            return leases.leader(tx, now=now, is_dead=self._liveness.is_dead)

    def close(self) -> None:
        """Withdraw all holders of this process."""
        self._liveness.close()
