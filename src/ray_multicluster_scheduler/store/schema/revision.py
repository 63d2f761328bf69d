"""The schema revision of a database, which Alembic keeps in a table. We write to one revision only."""

from __future__ import annotations

from sqlalchemy import Column, Connection, MetaData, String, Table, insert, inspect, select

from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.store.schema.prepared import Fixed
from ray_multicluster_scheduler.store.schema.tables import REVISION

#: The table as Alembic creates it.
_table = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
_REVISION = Fixed(select(_table.c.version_num))


def read_revision(tx: Connection) -> str | None:
    """Return the revision of a database; None: it has no schema."""
    if not inspect(tx).has_table(_table.name):
        return None
    revision: str = _REVISION.run(tx).scalar_one()
    return revision


def write_revision(tx: Connection) -> None:
    """Write the current revision to a database that was created without Alembic."""
    _table.create(tx)
    tx.execute(insert(_table).values(version_num=REVISION))


def require_current(tx: Connection) -> None:
    """Raise `StoreError` if another version has changed the schema since. Called before each write."""
    revision = _REVISION.run(tx).scalar_one()
    if revision != REVISION:
        raise newer_schema(revision)


def newer_schema(revision: str) -> StoreError:
    """Return the error for a database that a newer version has written."""
    return StoreError(
        f"the job store was written by a newer version of this package (its schema is {revision!r}); nothing "
        "was written. Install that version or a later one, and start this program again"
    )
