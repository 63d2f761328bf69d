"""The leader lease: one row, and an epoch that fences out former leaders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlalchemy import Connection, select, update

from ray_multicluster_scheduler.errors import LeaseLost
from ray_multicluster_scheduler.model.job import Lease
from ray_multicluster_scheduler.store.schema.prepared import Fixed
from ray_multicluster_scheduler.store.schema.rows import lease_from
from ray_multicluster_scheduler.store.schema.tables import lease as table

#: No lease lasts this long. A lease that ends later was written before the clock was set back.
LONGEST_LEASE_S = 3600.0

#: Returns whether a holder has certainly ended.
IsDead = Callable[[str], bool]

_LEASE = Fixed(select(table.c.holder, table.c.epoch, table.c.expires_at))


def acquire(tx: Connection, holder: str, *, ttl_s: float, now: float, is_dead: IsDead) -> Lease | None:
    """Take the lease if nobody holds it, or it is ours already; a new holder gets a larger epoch."""
    current = _current(tx)
    expires_at = now + ttl_s
    if current is not None and current.holder == holder:
        mine = replace(current, expires_at=expires_at)
    elif current is None or not _holds(current, now=now, is_dead=is_dead):
        epoch = tx.execute(select(table.c.epoch)).scalar_one()
        mine = Lease(holder=holder, epoch=epoch + 1, expires_at=expires_at)
    else:
        return None
    tx.execute(update(table).values(holder=mine.holder, epoch=mine.epoch, expires_at=mine.expires_at))
    return mine


def renew(tx: Connection, lease: Lease, *, ttl_s: float, now: float) -> Lease:
    """Extend the lease, or raise `LeaseLost`. A late renewal is fine if nobody else has taken it."""
    renewed = replace(lease, expires_at=now + ttl_s)
    if not _update_if_mine(tx, lease, expires_at=renewed.expires_at):
        raise _lost(tx, lease.epoch)
    return renewed


def release(tx: Connection, lease: Lease) -> None:
    """Give the lease up if it is still ours."""
    _update_if_mine(tx, lease, holder=None)


def leader(tx: Connection, *, now: float, is_dead: IsDead) -> Lease | None:
    """Return the lease of the current leader, if there is one."""
    current = _current(tx)
    return current if current is not None and _holds(current, now=now, is_dead=is_dead) else None


def require(tx: Connection, epoch: int) -> None:
    """Raise `LeaseLost` unless this epoch holds the lease. An expired lease that nobody took still counts."""
    current = _current(tx)
    if current is None or current.epoch != epoch:
        raise _lost(tx, epoch)


def _holds(current: Lease, *, now: float, is_dead: IsDead) -> bool:
    return now < current.expires_at <= now + LONGEST_LEASE_S and not is_dead(current.holder)


def _current(tx: Connection) -> Lease | None:
    return lease_from(_LEASE.run(tx).one())


def _update_if_mine(tx: Connection, lease: Lease, **values: object) -> bool:
    mine = update(table).where(table.c.holder == lease.holder, table.c.epoch == lease.epoch)
    return tx.execute(mine.values(**values)).rowcount == 1


def _lost(tx: Connection, epoch: int) -> LeaseLost:
    current = _current(tx)
    now_led_by = (
        "nobody leads now" if current is None else f"{current.holder!r} leads now with epoch {current.epoch}"
    )
    return LeaseLost(f"the leader lease with epoch {epoch} is over: {now_led_by}; nothing was written")
