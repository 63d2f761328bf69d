"""New stores, and the schema revision of a database, which Alembic keeps in a table.

A store that was moved to another place has the mark `MOVED` instead of a revision. Every version looks at the
revision before it writes, so none writes to such a store, and the look costs nothing more.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, String, Table, Text, insert, inspect, select, update
from sqlalchemy.schema import CreateIndex, CreateTable

from ray_multicluster_scheduler.errors import ForeignStore, StoreError
from ray_multicluster_scheduler.store.schema.prepared import Fixed
from ray_multicluster_scheduler.store.schema.tables import REVISION, lease, meta, metadata, upkeep

#: The table as Alembic creates it.
_table = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
_REVISION = Fixed(select(_table.c.version_num))
MOVED = "moved"
MIGRATIONS = Path(__file__).parent / "migrations"
#: The revisions that stores had before the first release. No migration leads from them to the present one.
BEFORE_RELEASE = frozenset(f"{number:04}_pre" for number in range(1, 17))
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


def upgrade(tx: Connection, *, revision: str) -> None:
    """Run the migrations after `revision` inside the open transaction: all of them or none."""
    # Imported here because it takes 0.2 s, and most stores need no migration.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    config = Config(attributes={"connection": tx})
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if revision not in known:
        raise not_ours(tx, revision)
    with _quiet_alembic():
        command.upgrade(config, "head")


def not_ours(tx: Connection, revision: str) -> StoreError:
    """Return the error for a database with a revision that this version does not know."""
    if revision in BEFORE_RELEASE:
        return StoreError(
            f"the job store was made by a commit before the first release (its schema is {revision!r}) and "
            "cannot be used any more; nothing was written. Start with an empty store (name another state "
            "directory with RAY_MULTICLUSTER_HOME, or another `store` in clusters.yaml), or use that commit"
        )
    place = moved_to(tx)
    if place is not None:
        return ForeignStore(
            f"this job store was moved to {place}; nothing was written here. Name that place as `store` "
            "under `scheduler:` in clusters.yaml, or with RAY_MULTICLUSTER_STORE, "
            "and start this program again"
        )
    return StoreError(
        f"the job store was written by a newer version of this package (its schema is {revision!r}); nothing "
        "was written. Install that version or a later one, and start this program again"
    )


@contextlib.contextmanager
def _quiet_alembic() -> Iterator[None]:
    """Keep Alembic's steps, which it logs at INFO, out of the log of a program that submits a job."""
    logger = logging.getLogger("alembic")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


#: As long as the output of the HMAC that proves a token.
JOB_KEY_BYTES = 32


def create_tables(tx: Connection) -> None:
    """Create all tables, and the row that every store has."""
    for table in metadata.sorted_tables:
        tx.execute(CreateTable(table))
        # SQLAlchemy keeps them in a set, and of two that seem equally good SQLite takes the one that was made
        # last. By name, backwards, those for pages of heads come after the general ones.
        for index in sorted(table.indexes, key=lambda each: str(each.name), reverse=True):
            tx.execute(CreateIndex(index))
    write_revision(tx)
    tx.execute(insert(upkeep).values(id=1, secrets_until=0.0))


def create_identity(tx: Connection) -> None:
    """Write the identity of a new store, and the row of its lease, which nobody holds."""
    tx.execute(
        insert(meta).values(
            id=1,
            store_id=uuid.uuid4().hex,
            created_at=time.time(),
            changes=0,
            job_key=secrets.token_hex(JOB_KEY_BYTES),
        )
    )
    tx.execute(insert(lease).values(id=1, holder=None, epoch=0, expires_at=0.0))


def read_store_id(tx: Connection) -> str:
    """Return the id of the store."""
    store_id: str = tx.execute(select(meta.c.store_id)).scalar_one()
    return store_id
