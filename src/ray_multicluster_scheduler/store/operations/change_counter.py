"""A number that grows with each commit that a waiting process may care about."""

from __future__ import annotations

from sqlalchemy import Connection, literal_column, select, update

from ray_multicluster_scheduler.store.schema.prepared import Fixed
from ray_multicluster_scheduler.store.schema.tables import meta

_CHANGES = Fixed(select(meta.c.changes))
_COUNT_CHANGE = Fixed(update(meta).values(changes=meta.c.changes + literal_column("1")))


def read_changes(tx: Connection) -> int:
    """Return how many changes were committed so far."""
    changes: int = _CHANGES.run(tx).scalar_one()
    return changes


def count_change(tx: Connection) -> None:
    """Count this transaction as a change."""
    _COUNT_CHANGE.run(tx)
