"""Open and make stores on SQLite: private files, the right identity, the schema of this version."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, inspect

from ray_multicluster_scheduler.errors import ForeignStore, StoreError
from ray_multicluster_scheduler.store.backend import FALLBACK_POLL_S
from ray_multicluster_scheduler.store.locks import FileLock, HolderLocks
from ray_multicluster_scheduler.store.schema.revision import (
    MOVED,
    create_identity,
    create_tables,
    read_revision,
    read_store_id,
    upgrade,
)
from ray_multicluster_scheduler.store.schema.tables import REVISION
from ray_multicluster_scheduler.store.sqlite import files
from ray_multicluster_scheduler.store.sqlite.database import SqliteDatabase
from ray_multicluster_scheduler.store.sqlite.notifier import SocketNotifier
from ray_multicluster_scheduler.store.store import Store
from ray_multicluster_scheduler.store.transactions import read_changes

#: The folder of the sockets. Processes of earlier versions look for them here too, so the name stays.
_SOCKETS = "bells"
_HOLDERS = "holders"
_FRESH_START = "to start anew with an empty queue, move the whole directory away"


def open_store(directory: Path, *, create: bool = True, fallback_poll_s: float = FALLBACK_POLL_S) -> Store:
    """Open the store in `directory`, which must be on a local disk; with `create`, make it if there is none.

    `ForeignStore` if the directory had another database before: jobs may be running that this one does not
    know. `fallback_poll_s` is how late a change by another process is noticed at worst.
    """
    try:
        if not create and not (directory / files.DATABASE).exists() and files.read_marker(directory) is None:
            raise no_store(directory)
        files.make_private_directory(directory)
        in_use, database = _enter(directory, _open_database)
    except OSError as error:
        raise _cannot_be_opened(directory, error) from error
    return Store(
        database,
        SocketNotifier(directory / _SOCKETS, _changes_of(database), fallback_poll_s=fallback_poll_s),
        HolderLocks(directory / _HOLDERS),
        closing=partial(files.leaving, directory, in_use),
    )


@contextlib.contextmanager
def existing_directory(directory: Path) -> Iterator[SqliteDatabase]:
    """Open the database in `directory` as it is: it is neither created nor brought to another schema."""
    path = directory / files.DATABASE
    try:
        if not path.exists():
            raise no_store(directory)
        in_use, database = _enter(directory, _open_as_it_is)
    except OSError as error:
        raise _cannot_be_opened(directory, error) from error
    try:
        yield database
    finally:
        with files.leaving(directory, in_use):
            database.close()


@contextlib.contextmanager
def new_directory(directory: Path) -> Iterator[tuple[SqliteDatabase, Connection]]:
    """Make a store with empty tables in `directory`. It is there when the block has ended well."""
    path = directory / files.DATABASE
    try:
        files.make_private_directory(directory)
        with files.opening(directory):
            if path.exists() or files.read_marker(directory) is not None:
                names = f"{files.DATABASE}* and {files.MARKER}"
                raise StoreError(
                    f"there is a job store in {directory} already. Name another place; or stop all "
                    f"programs that use it, and move its files {names} elsewhere"
                )
            with new_file(path, replace=False) as (database, tx):
                yield database, tx
                store_id = read_store_id(tx)
            files.write_marker(directory, store_id)
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


def open_memory_store() -> Store:
    """Open a store in memory, which lives as long as this object."""
    database = SqliteDatabase(None)
    with database.write() as tx:
        create_tables(tx)
        create_identity(tx)
    notifier = SocketNotifier(None, _changes_of(database), fallback_poll_s=FALLBACK_POLL_S)
    store = Store(database, notifier, HolderLocks(None))
    weakref.finalize(store, database.close).atexit = False
    return store


# A store as one file, without a directory of its own: a backup, or a store that is just being made.


@contextlib.contextmanager
def new_file(path: Path, *, replace: bool) -> Iterator[tuple[SqliteDatabase, Connection]]:
    """Make a file with empty tables. It has its name, and is on disk, when the block has ended well.

    The file has no write-ahead log, so it is complete by itself. Without `replace`, an existing file stays.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        if not replace and path.exists():
            raise _taken(path)
        draft.unlink(missing_ok=True)
        files.make_private_file(draft)
        database = SqliteDatabase(draft)
        try:
            database.enable_shrinking()
            with database.write() as tx:
                create_tables(tx)
                yield database, tx
        finally:
            database.close()
        _give_name(draft, path, replace=replace)
    except OSError as problem:
        raise StoreError(f"{path} cannot be written: {problem.strerror or problem}") from problem
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
            draft.with_name(f"{draft.name}-journal").unlink(missing_ok=True)


@contextlib.contextmanager
def existing_file(path: Path) -> Iterator[SqliteDatabase]:
    """Open a store file to read it. One of an older version is copied, and the copy brought up to date."""
    if not path.is_file():
        raise StoreError(f"there is no file {path}")
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(contextlib.closing(SqliteDatabase(path)))
        with database.read() as tx:
            revision = read_revision(tx)
        if revision is None:
            raise StoreError(f"{path} is not a job store; name a file that `raymc db backup` has written")
        if revision not in {REVISION, MOVED}:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raymc-restore-")))
            database = stack.enter_context(contextlib.closing(_updated_copy(path, folder, revision)))
        yield database


def _changes_of(database: SqliteDatabase) -> Callable[[], int]:
    def changes() -> int:
        with database.read() as tx:
            return read_changes(tx)

    return changes


def _open_database(directory: Path) -> SqliteDatabase:
    path = directory / files.DATABASE
    expected = files.read_marker(directory)
    if expected is not None and not (path.exists() and path.stat().st_size):
        raise ForeignStore(
            f"the job database {path} is gone, but {directory / files.MARKER} says that it was "
            f"here, and its jobs may still be running. Put it back from a backup; {_FRESH_START}"
        )
    files.make_private_file(path)
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
                files.write_marker(directory, read_store_id(tx))
    except BaseException:
        database.close()
        raise
    return database


def _enter(
    directory: Path, open_database: Callable[[Path], SqliteDatabase]
) -> tuple[FileLock, SqliteDatabase]:
    """Show that the directory is in use, and open its database."""
    with files.opening(directory), contextlib.ExitStack() as undo:
        in_use = files.enter(directory)
        undo.callback(in_use.release)
        database = open_database(directory)
        undo.pop_all()
    return in_use, database


def _open_as_it_is(directory: Path) -> SqliteDatabase:
    """Open a database and its write-ahead log, and change nothing."""
    path = directory / files.DATABASE
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(contextlib.closing(SqliteDatabase(path)))
        with database.read() as tx:
            if _revision(tx, path) is None:
                raise no_store(directory)
            _check_identity(tx, path, files.read_marker(directory))
        stack.pop_all()
    return database


def _revision(tx: Connection, path: Path) -> str | None:
    """Return the schema revision of the database; None: it is empty."""
    revision = read_revision(tx)
    if revision is None and inspect(tx).get_table_names():
        raise ForeignStore(f"{path} is a database, but not a job store; {_FRESH_START}")
    return revision


def _check_identity(tx: Connection, path: Path, expected: str | None) -> None:
    store_id = read_store_id(tx)
    if expected is not None and store_id != expected:
        raise ForeignStore(
            f"the job database {path} is another one than before (it is {store_id}, "
            f"{path.parent / files.MARKER} says {expected}): jobs may be running that it does not "
            f"know. Put the right one back; {_FRESH_START}"
        )


def _migrate(database: SqliteDatabase, revision: str | None) -> None:
    with database.write() as tx:
        if revision is None:
            create_tables(tx)
            create_identity(tx)
        else:
            upgrade(tx, revision=revision)


def _updated_copy(path: Path, folder: Path, revision: str) -> SqliteDatabase:
    copy = folder / files.DATABASE
    shutil.copyfile(path, copy)
    with contextlib.ExitStack() as undo:
        database = undo.enter_context(contextlib.closing(SqliteDatabase(copy)))
        with database.write() as tx:
            upgrade(tx, revision=revision)
        undo.pop_all()
    return database


def _give_name(draft: Path, path: Path, *, replace: bool) -> None:
    files.sync(draft)
    if replace:
        draft.replace(path)
    else:
        try:
            os.link(draft, path)  # unlike a rename, it fails if there is a file meanwhile
        except FileExistsError:
            raise _taken(path) from None
        except OSError:  # a file system without links
            if path.exists():
                raise _taken(path) from None
            draft.replace(path)
    files.sync(path.parent)


def _taken(path: Path) -> StoreError:
    return StoreError(f"{path} exists; name another file, or replace it with --force")
