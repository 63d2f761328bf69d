"""A store as one file, without a directory of its own: a backup, or a store that is just being made."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection

from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.store.schema.new_schema import create_tables
from ray_multicluster_scheduler.store.schema.revision import MOVED, read_revision
from ray_multicluster_scheduler.store.schema.tables import REVISION
from ray_multicluster_scheduler.store.sqlite import database_files
from ray_multicluster_scheduler.store.sqlite.database import SqliteDatabase


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
        database_files.make_private_file(draft)
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


def _updated_copy(path: Path, folder: Path, revision: str) -> SqliteDatabase:
    # Imported here because it takes 0.2 s, and most files need no migration.
    from ray_multicluster_scheduler.store.schema.migrate import upgrade  # noqa: PLC0415

    copy = folder / database_files.DATABASE
    shutil.copyfile(path, copy)
    with contextlib.ExitStack() as undo:
        database = undo.enter_context(contextlib.closing(SqliteDatabase(copy)))
        with database.write() as tx:
            upgrade(tx, revision=revision)
        undo.pop_all()
    return database


def _give_name(draft: Path, path: Path, *, replace: bool) -> None:
    database_files.sync(draft)
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
    database_files.sync(path.parent)


def _taken(path: Path) -> StoreError:
    return StoreError(f"{path} exists; name another file, or replace it with --force")
