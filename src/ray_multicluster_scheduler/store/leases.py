"""The leader lease: one row, and an epoch that fences out former leaders. What a new leader settles first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import Column, Connection, case, select, update

from ray_multicluster_scheduler.model.job import Lease
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.ports import CLOCK_STEP_S
from ray_multicluster_scheduler.store.locks import HolderLocks
from ray_multicluster_scheduler.store.schema.tables import attempts, jobs, upkeep
from ray_multicluster_scheduler.store.schema.tables import lease as table
from ray_multicluster_scheduler.store.transactions import Transactions, lease_lost, read_lease

#: No lease lasts this long. A lease that ends later was written before the clock was set back.
LONGEST_LEASE_S = 3600.0

_OPEN = jobs.c.state.in_(sorted(state.value for state in JobState if state not in FINAL))
_TIMES = (jobs.c.accepted_at, jobs.c.placed_at, jobs.c.seen_at, jobs.c.started_at, jobs.c.changed_at)
_ATTEMPT_TIMES = (attempts.c.placed_at, attempts.c.started_at)


class Leases:
    """The leader lease, measured by the clock of the store and by whether its holder lives."""

    def __init__(self, transactions: Transactions, holders: HolderLocks) -> None:
        self._transactions = transactions
        self._holders = holders

    def acquire(self, holder: str, *, ttl_s: float, now: float) -> Lease | None:
        """Take the lease if it is free, expired or already ours; a new holder gets a larger epoch.

        A lease is also free as soon as the store can tell that its holder has ended. An expiry further ahead
        than the longest lease counts as past: the clock was set back.
        """
        self._holders.announce(holder)  # before the row is written: a new leader must not look dead
        lease = None
        try:
            with self._transactions.write(notify=False) as tx:
                lease = self._acquire(tx, holder, ttl_s=ttl_s, now=self._transactions.time(tx, now))
        finally:
            if lease is None:
                self._holders.withdraw(holder)
        if lease is not None:
            self._holders.tidy()
        return lease

    def renew(self, lease: Lease, *, ttl_s: float, now: float) -> Lease:
        """Extend the lease, or raise `LeaseLost`. A late renewal is fine if nobody else has taken it."""
        with self._transactions.write(notify=False) as tx:
            renewed = replace(lease, expires_at=self._transactions.time(tx, now) + ttl_s)
            if not _update_if_mine(tx, lease, expires_at=renewed.expires_at):
                raise lease_lost(tx, lease.epoch)
            return renewed

    def release(self, lease: Lease) -> None:
        """Release the lease if it is still ours, so that the next leader need not wait."""
        try:
            with self._transactions.write() as tx:
                _update_if_mine(tx, lease, holder=None)
        finally:
            self._holders.withdraw(lease.holder)

    def current(self, *, now: float) -> Lease | None:
        """Return the present lease, or None, by the same rules as `acquire`."""
        with self._transactions.read() as tx:
            return self.current_in(tx, now=now)

    def current_in(self, tx: Connection, *, now: float) -> Lease | None:
        """Return the present lease as a transaction sees it."""
        return leader(tx, now=self._transactions.time(tx, now), is_dead=self._holders.is_dead)

    def settle_clock(self, *, boot: str, offset: float, epoch: int, now: float) -> float:
        """Record that the time is `offset` more than the uptime since `boot`; call it before leading.

        If the record of a former leader shows that the clock was set meanwhile, the times of all open jobs
        are shifted by the difference, so that no wait or run seems longer. Returns the difference. After a
        restart of the machine it is unknown. But a time in the future must have been written before the
        clock was set back.
        """
        with self._transactions.write(epoch=epoch) as tx:
            last_boot, last_offset = tx.execute(select(upkeep.c.clock_boot, upkeep.c.clock_offset)).one()
            tx.execute(update(upkeep).values(clock_boot=boot, clock_offset=offset))
            step = 0.0 if last_boot is None else offset - last_offset
            if abs(step) < CLOCK_STEP_S:
                return 0.0
            if boot != last_boot:
                _bring_back(tx, now=now)
                return 0.0
            _move(tx, step, now=now)
            return step

    def close(self) -> None:
        """Withdraw all holders of this process."""
        self._holders.close()

    def _acquire(self, tx: Connection, holder: str, *, ttl_s: float, now: float) -> Lease | None:
        current = read_lease(tx)
        expires_at = now + ttl_s
        if current is not None and current.holder == holder:
            mine = replace(current, expires_at=expires_at)
        elif leader(tx, now=now, is_dead=self._holders.is_dead) is None:
            epoch = tx.execute(select(table.c.epoch)).scalar_one()
            mine = Lease(holder=holder, epoch=epoch + 1, expires_at=expires_at)
        else:
            return None
        tx.execute(update(table).values(holder=mine.holder, epoch=mine.epoch, expires_at=mine.expires_at))
        return mine


def leader(tx: Connection, *, now: float, is_dead: Callable[[str], bool]) -> Lease | None:
    """Return the lease of the current leader, if there is one. `is_dead`: a holder has certainly ended."""
    current = read_lease(tx)
    if current is None or not now < current.expires_at <= now + LONGEST_LEASE_S or is_dead(current.holder):
        return None
    return current


def _update_if_mine(tx: Connection, lease: Lease, **values: object) -> bool:
    mine = update(table).where(table.c.holder == lease.holder, table.c.epoch == lease.epoch)
    return tx.execute(mine.values(**values)).rowcount == 1


def _move(tx: Connection, step: float, *, now: float) -> None:
    values: dict[Column[Any], Any] = {column: column + step for column in _TIMES}
    values[jobs.c.not_before] = _delayed(jobs.c.not_before + step)
    # A deadline that would then be over comes from a process that used the new time already.
    deadline = jobs.c.queue_deadline
    values[deadline] = case((deadline + step > now, deadline + step), else_=deadline)
    tx.execute(update(jobs).where(_OPEN).values(values))
    tx.execute(
        update(attempts)
        .where(attempts.c.outcome.is_(None))
        .values({column: column + step for column in _ATTEMPT_TIMES})
    )


def _bring_back(tx: Connection, *, now: float) -> None:
    step = now - jobs.c.changed_at  # different for each job
    values: dict[Column[Any], Any] = {column: case((column > now, now), else_=column) for column in _TIMES}
    values[jobs.c.not_before] = _delayed(jobs.c.not_before + step)
    values[jobs.c.queue_deadline] = jobs.c.queue_deadline + step
    tx.execute(update(jobs).where(_OPEN, jobs.c.changed_at > now).values(values))


def _delayed(value: Any) -> Any:
    return case((jobs.c.not_before > 0, value), else_=jobs.c.not_before)
