"""Which schema a database has. Alembic keeps it there; this version of the package writes to one only."""

from __future__ import annotations

from sqlalchemy import Column, Connection, MetaData, String, Table, insert, inspect, select

from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.store.schema.prepared import Fixed
from ray_multicluster_scheduler.store.schema.tables import REVISION

#: As Alembic makes it.
_table = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
_REVISION = Fixed(select(_table.c.version_num))


def read_revision(tx: Connection) -> str | None:
    """Return the schema of a database; None: it has none."""
    if not inspect(tx).has_table(_table.name):
        return None
    revision: str = _REVISION.run(tx).scalar_one()
    return revision


def write_revision(tx: Connection) -> None:
    """Mark a database that was made without Alembic."""
    _table.create(tx)
    tx.execute(insert(_table).values(version_num=REVISION))


def require_current(tx: Connection) -> None:
    """Raise `StoreError` when another version has changed the schema meanwhile; asked before each write."""
    found = _REVISION.run(tx).scalar_one()
    if found != REVISION:
        raise newer_schema(found)


def newer_schema(revision: str) -> StoreError:
    """Return the error that says so."""
    return StoreError(
        f"the job store was written by a newer version of this package (its schema is {revision!r}); nothing "
        "was written. Install that version or a later one, and start this program again"
    )
