"""The schema revision of a database, which Alembic keeps in a table. We write to one revision only.

A store that was moved to another place has the mark `MOVED` instead of a revision. Every version looks at the
revision before it writes, so none writes to such a store, and the look costs nothing more.
"""

from __future__ import annotations

from sqlalchemy import Column, Connection, MetaData, String, Table, Text, insert, inspect, select, update

from ray_multicluster_scheduler.errors import ForeignStore, StoreError
from ray_multicluster_scheduler.store.schema.prepared import Fixed
from ray_multicluster_scheduler.store.schema.tables import REVISION

#: The table as Alembic creates it.
_table = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
_REVISION = Fixed(select(_table.c.version_num))
MOVED = "moved"
#: Exists only in a store that was moved: where to, and the revision that it had.
_moved_to = Table(
    "moved_to", MetaData(), Column("place", Text, nullable=False), Column("revision", Text, nullable=False)
)


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
        raise not_ours(tx, revision)


def mark_moved(tx: Connection, place: str) -> None:
    """Let nobody write to this database any more, and name the place where the store is now."""
    _moved_to.create(tx)
    tx.execute(insert(_moved_to).values(place=place, revision=REVISION))
    tx.execute(update(_table).values(version_num=MOVED))


def moved_to(tx: Connection) -> str | None:
    """Return where this store was moved to; None: it was not moved."""
    if read_revision(tx) != MOVED:
        return None
    place: str = tx.execute(select(_moved_to.c.place)).scalar_one()
    return place


def not_ours(tx: Connection, revision: str) -> StoreError:
    """Return the error for a database with a revision that this version does not know."""
    place = moved_to(tx)
    if place is None:
        return newer_schema(revision)
    return ForeignStore(
        f"this job store was moved to {place}; nothing was written here. Name that place as `store` under "
        "`scheduler:` in clusters.yaml, or with RAY_MULTICLUSTER_STORE, and start this program again"
    )


def newer_schema(revision: str) -> StoreError:
    """Return the error for a database that a newer version has written."""
    return StoreError(
        f"the job store was written by a newer version of this package (its schema is {revision!r}); nothing "
        "was written. Install that version or a later one, and start this program again"
    )
