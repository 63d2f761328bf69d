"""Opening a store: private files, the right identity, the schema of this version."""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, insert, inspect, select

from ray_multicluster_scheduler.errors import ForeignStore, StoreError
from ray_multicluster_scheduler.store.schema.revision import read_revision, write_revision
from ray_multicluster_scheduler.store.schema.tables import REVISION, lease, meta, metadata, upkeep
from ray_multicluster_scheduler.store.sql_store import SqlStore
from ray_multicluster_scheduler.store.sqlite import database_files
from ray_multicluster_scheduler.store.sqlite.change_notifier import FALLBACK_S, Bell
from ray_multicluster_scheduler.store.sqlite.database import Database
from ray_multicluster_scheduler.store.sqlite.lease_holders import Holders

_BELLS = "bells"
_HOLDERS = "holders"
#: As long as what the HMAC of a token puts out.
JOB_KEY_BYTES = 32
_FRESH_START = "to start anew with an empty queue, move the whole directory away"


def open_store(directory: Path, *, create: bool = True, bell_fallback_s: float = FALLBACK_S) -> SqlStore:
    """Open the store in `directory`, which must be on a local disk; make it there if need be.

    `ForeignStore` when the database is not the one that this directory has had: jobs may be running that it
    does not know. `bell_fallback_s` is how late a change by another process is noticed at worst.
    """
    try:
        if (
            not create
            and not (directory / database_files.DATABASE).exists()
            and database_files.read_marker(directory) is None
        ):
            raise StoreError(f"there is no job store in {directory}; the first submitted job makes one")
        database_files.make_private_directory(directory)
        with database_files.opening(directory):
            in_use = database_files.enter(directory)
            try:
                database = _open_database(directory)
            except BaseException:
                in_use.release()
                raise
    except OSError as error:
        raise StoreError(
            f"the job store in {directory} cannot be opened: {error.strerror or error}; check its owner and "
            "modes, or set RAY_MULTICLUSTER_HOME to a directory that you may write to"
        ) from error
    return SqlStore(
        database,
        partial(Bell, directory / _BELLS, fallback_s=bell_fallback_s),
        Holders(directory / _HOLDERS),
        leaving=partial(database_files.leaving, directory, in_use),
    )


def open_memory_store() -> SqlStore:
    """Open a store that lives as long as this object: the same code on a database in memory."""
    database = Database(None)
    with database.write() as tx:
        metadata.create_all(tx)
        write_revision(tx)
        tx.execute(insert(upkeep).values(id=1, secrets_until=0.0))
        _write_identity(tx)
    return SqlStore(database, partial(Bell, None, fallback_s=FALLBACK_S), Holders(None))


def _open_database(directory: Path) -> Database:
    path = directory / database_files.DATABASE
    expected = database_files.read_marker(directory)
    if expected is not None and not (path.exists() and path.stat().st_size):
        raise ForeignStore(
            f"the job database {path} is gone, but {directory / database_files.MARKER} says that it was "
            f"here, and its jobs may still be running. Put it back from a backup; {_FRESH_START}"
        )
    database_files.make_private_file(path)
    database = Database(path)
    try:
        with database.read() as tx:
            revision = _revision(tx, path)
            if revision is not None:
                _check_identity(tx, path, expected)
        database.use_wal(new=revision is None)
        if revision != REVISION:
            _bring_up_to_date(database, revision)
        if expected is None:
            with database.read() as tx:
                database_files.write_marker(directory, tx.execute(select(meta.c.store_id)).scalar_one())
    except BaseException:
        database.close()
        raise
    return database


def _revision(tx: Connection, path: Path) -> str | None:
    """Return the schema of the database; None: it is empty."""
    revision = read_revision(tx)
    if revision is None and inspect(tx).get_table_names():
        raise ForeignStore(f"{path} is a database, but not a job store; {_FRESH_START}")
    return revision


def _check_identity(tx: Connection, path: Path, expected: str | None) -> None:
    found = tx.execute(select(meta.c.store_id)).scalar_one()
    if expected is not None and found != expected:
        raise ForeignStore(
            f"the job database {path} is another one than before (it is {found}, "
            f"{path.parent / database_files.MARKER} says {expected}): jobs may be running that it does not "
            f"know. Put the right one back; {_FRESH_START}"
        )


def _bring_up_to_date(database: Database, revision: str | None) -> None:
    with _quiet_alembic(), database.write() as tx:
        # Alembic takes 0.2 s to import, which a store that is up to date need not cost.
        from ray_multicluster_scheduler.store.schema.migrate import upgrade  # noqa: PLC0415

        upgrade(tx, revision=revision)
        if revision is None:
            _write_identity(tx)


@contextlib.contextmanager
def _quiet_alembic() -> Iterator[None]:
    """Keep Alembic's steps, which it tells at INFO, out of the log of who submits a job."""
    logger = logging.getLogger("alembic")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _write_identity(tx: Connection) -> None:
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
