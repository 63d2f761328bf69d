"""Create the tables of a new store as they are in this version, without its migrations."""

from __future__ import annotations

from sqlalchemy import Connection, insert

from ray_multicluster_scheduler.store.schema.revision import write_revision
from ray_multicluster_scheduler.store.schema.tables import metadata, upkeep


def create_tables(tx: Connection) -> None:
    """Create all tables, and the row that every store has."""
    metadata.create_all(tx)
    write_revision(tx)
    tx.execute(insert(upkeep).values(id=1, secrets_until=0.0))
