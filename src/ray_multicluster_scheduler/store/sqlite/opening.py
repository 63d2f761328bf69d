"""Open a store on SQLite: private files, the right identity, the schema of this version."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, inspect

from ray_multicluster_scheduler.errors import ForeignStore, StoreError
from ray_multicluster_scheduler.store.local_notifier import FALLBACK_POLL_S
from ray_multicluster_scheduler.store.operations import change_counter, store_identity
from ray_multicluster_scheduler.store.schema.new_schema import create_tables
from ray_multicluster_scheduler.store.schema.revision import read_revision
from ray_multicluster_scheduler.store.schema.tables import REVISION
from ray_multicluster_scheduler.store.sql_store import SqlStore
from ray_multicluster_scheduler.store.sqlite import database_files
from ray_multicluster_scheduler.store.sqlite.database import SqliteDatabase
from ray_multicluster_scheduler.store.sqlite.file_locks import FileLock
from ray_multicluster_scheduler.store.sqlite.holder_locks import HolderLocks
from ray_multicluster_scheduler.store.sqlite.socket_notifier import SocketNotifier
from ray_multicluster_scheduler.store.sqlite.store_file import new_file

#: The folder of the sockets. Processes of earlier versions look for them here too, so the name stays.
_SOCKETS = "bells"
_HOLDERS = "holders"
_FRESH_START = "to start anew with an empty queue, move the whole directory away"


def open_store(directory: Path, *, create: bool = True, fallback_poll_s: float = FALLBACK_POLL_S) -> SqlStore:
    """Open the store in `directory`, which must be on a local disk; with `create`, make it if there is none.

    `ForeignStore` if the directory had another database before: jobs may be running that this one does not
    know. `fallback_poll_s` is how late a change by another process is noticed at worst.
    """
    try:
        if (
            not create
            and not (directory / database_files.DATABASE).exists()
            and database_files.read_marker(directory) is None
        ):
            raise no_store(directory)
        database_files.make_private_directory(directory)
        in_use, database = _enter(directory, _open_database)
    except OSError as error:
        raise _cannot_be_opened(directory, error) from error
    return SqlStore(
        database,
        SocketNotifier(directory / _SOCKETS, _changes_of(database), fallback_poll_s=fallback_poll_s),
        HolderLocks(directory / _HOLDERS),
        closing=partial(database_files.leaving, directory, in_use),
    )


@contextlib.contextmanager
def existing_directory(directory: Path) -> Iterator[SqliteDatabase]:
    """Open the database in `directory` as it is: it is neither created nor brought to another schema."""
    path = directory / database_files.DATABASE
    try:
        if not path.exists():
            raise no_store(directory)
        in_use, database = _enter(directory, _open_as_it_is)
    except OSError as error:
        raise _cannot_be_opened(directory, error) from error
    try:
        yield database
    finally:
        with database_files.leaving(directory, in_use):
            database.close()


@contextlib.contextmanager
def new_directory(directory: Path) -> Iterator[tuple[SqliteDatabase, Connection]]:
    """Make a store with empty tables in `directory`. It is there when the block has ended well."""
    path = directory / database_files.DATABASE
    try:
        database_files.make_private_directory(directory)
        with database_files.opening(directory):
            if path.exists() or database_files.read_marker(directory) is not None:
                files = f"{database_files.DATABASE}* and {database_files.MARKER}"
                raise StoreError(
                    f"there is a job store in {directory} already. Name another place; or stop all "
                    f"programs that use it, and move its files {files} elsewhere"
                )
            with new_file(path, replace=False) as (database, tx):
                yield database, tx
                store_id = store_identity.read_store_id(tx)
            database_files.write_marker(directory, store_id)
    except OSError as error:
        raise _cannot_be_opened(directory, error) from error


def no_store(directory: Path) -> StoreError:
    """Return the error for a directory without a store."""
    return StoreError(f"there is no job store in {directory}; the first submitted job makes one")


def _cannot_be_opened(directory: Path, error: OSError) -> StoreError:
    return StoreError(
        f"the job store in {directory} cannot be opened: {error.strerror or error}; check its owner and "
        "modes, or set RAY_MULTICLUSTER_HOME to a directory that you may write to"
    )


def open_memory_store() -> SqlStore:
    """Open a store in memory, which lives as long as this object."""
    database = SqliteDatabase(None)
    with database.write() as tx:
        create_tables(tx)
        store_identity.create_identity(tx)
    notifier = SocketNotifier(None, _changes_of(database), fallback_poll_s=FALLBACK_POLL_S)
    store = SqlStore(database, notifier, HolderLocks(None))
    weakref.finalize(store, database.close).atexit = False
    return store


def _changes_of(database: SqliteDatabase) -> Callable[[], int]:
    def read_changes() -> int:
        with database.read() as tx:
            return change_counter.read_changes(tx)

    return read_changes


def _open_database(directory: Path) -> SqliteDatabase:
    path = directory / database_files.DATABASE
    expected = database_files.read_marker(directory)
    if expected is not None and not (path.exists() and path.stat().st_size):
        raise ForeignStore(
            f"the job database {path} is gone, but {directory / database_files.MARKER} says that it was "
            f"here, and its jobs may still be running. Put it back from a backup; {_FRESH_START}"
        )
    database_files.make_private_file(path)
    database = SqliteDatabase(path)
    try:
        with database.read() as tx:
            revision = _revision(tx, path)
            if revision is not None:
                _check_identity(tx, path, expected)
        database.use_wal(new=revision is None)
        if revision != REVISION:
            _migrate(database, revision)
        if expected is None:
            with database.read() as tx:
                database_files.write_marker(directory, store_identity.read_store_id(tx))
    except BaseException:
        database.close()
        raise
    return database


def _enter(
    directory: Path, open_database: Callable[[Path], SqliteDatabase]
) -> tuple[FileLock, SqliteDatabase]:
    """Show that the directory is in use, and open its database."""
    with database_files.opening(directory), contextlib.ExitStack() as undo:
        in_use = database_files.enter(directory)
        undo.callback(in_use.release)
        database = open_database(directory)
        undo.pop_all()
    return in_use, database


def _open_as_it_is(directory: Path) -> SqliteDatabase:
    """Open a database and its write-ahead log, and change nothing."""
    path = directory / database_files.DATABASE
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(contextlib.closing(SqliteDatabase(path)))
        with database.read() as tx:
            if _revision(tx, path) is None:
                raise no_store(directory)
            _check_identity(tx, path, database_files.read_marker(directory))
        stack.pop_all()
    return database


def _revision(tx: Connection, path: Path) -> str | None:
    """Return the schema revision of the database; None: it is empty."""
    revision = read_revision(tx)
    if revision is None and inspect(tx).get_table_names():
        raise ForeignStore(f"{path} is a database, but not a job store; {_FRESH_START}")
    return revision


def _check_identity(tx: Connection, path: Path, expected: str | None) -> None:
    store_id = store_identity.read_store_id(tx)
    if expected is not None and store_id != expected:
        raise ForeignStore(
            f"the job database {path} is another one than before (it is {store_id}, "
            f"{path.parent / database_files.MARKER} says {expected}): jobs may be running that it does not "
            f"know. Put the right one back; {_FRESH_START}"
        )


def _migrate(database: SqliteDatabase, revision: str | None) -> None:
    with database.write() as tx:
        # Imported here because it takes 0.2 s, and most stores need no migration.
        from ray_multicluster_scheduler.store.schema.migrate import upgrade  # noqa: PLC0415

        upgrade(tx, revision=revision)
        if revision is None:
            store_identity.create_identity(tx)
