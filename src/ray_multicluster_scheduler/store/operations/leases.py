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

#: No lease is this long: one that ends later was written before the clock was set back.
LONGEST_LEASE_S = 3600.0

#: Tells of a holder whether it has ended for certain.
IsDead = Callable[[str], bool]

_LEASE = Fixed(select(table.c.holder, table.c.epoch, table.c.expires_at))


def acquire(tx: Connection, holder: str, *, ttl_s: float, now: float, is_dead: IsDead) -> Lease | None:
    """Take the lease if nobody holds it, or it is ours already; a new holder gets a larger epoch."""
    held = _held(tx)
    expires_at = now + ttl_s
    if held is not None and held.holder == holder:
        mine = replace(held, expires_at=expires_at)
    elif held is None or not _holds(held, now=now, is_dead=is_dead):
        epoch = tx.execute(select(table.c.epoch)).scalar_one()
        mine = Lease(holder=holder, epoch=epoch + 1, expires_at=expires_at)
    else:
        return None
    tx.execute(update(table).values(holder=mine.holder, epoch=mine.epoch, expires_at=mine.expires_at))
    return mine


def renew(tx: Connection, lease: Lease, *, ttl_s: float, now: float) -> Lease:
    """Extend the lease, or raise `LeaseLost`. Late is fine as long as nobody else took it."""
    renewed = replace(lease, expires_at=now + ttl_s)
    if not _update_if_mine(tx, lease, expires_at=renewed.expires_at):
        raise _lost(tx, lease.epoch)
    return renewed


def release(tx: Connection, lease: Lease) -> None:
    """Give the lease up if it is still ours."""
    _update_if_mine(tx, lease, holder=None)


def leader(tx: Connection, *, now: float, is_dead: IsDead) -> Lease | None:
    """Return who leads now, if anybody."""
    held = _held(tx)
    return held if held is not None and _holds(held, now=now, is_dead=is_dead) else None


def require(tx: Connection, epoch: int) -> None:
    """Raise `LeaseLost` unless this epoch holds the lease; an expired one that nobody took still does."""
    held = _held(tx)
    if held is None or held.epoch != epoch:
        raise _lost(tx, epoch)


def _holds(held: Lease, *, now: float, is_dead: IsDead) -> bool:
    return now < held.expires_at <= now + LONGEST_LEASE_S and not is_dead(held.holder)


def _held(tx: Connection) -> Lease | None:
    return lease_from(_LEASE.run(tx).one())


def _update_if_mine(tx: Connection, lease: Lease, **values: object) -> bool:
    mine = update(table).where(table.c.holder == lease.holder, table.c.epoch == lease.epoch)
    return tx.execute(mine.values(**values)).rowcount == 1


def _lost(tx: Connection, epoch: int) -> LeaseLost:
    held = _held(tx)
    now_led_by = "nobody leads now" if held is None else f"{held.holder!r} leads now with epoch {held.epoch}"
    return LeaseLost(f"the leader lease with epoch {epoch} is over: {now_led_by}; nothing was written")
