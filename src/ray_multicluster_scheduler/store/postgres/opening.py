"""Open a store on PostgreSQL: its schema, its identity, the tables of this version."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import psycopg
from sqlalchemy import Connection, inspect

from ray_multicluster_scheduler.errors import ForeignStore, StoreError
from ray_multicluster_scheduler.store.backend import FALLBACK_POLL_S
from ray_multicluster_scheduler.store.locks import HolderLocks
from ray_multicluster_scheduler.store.postgres.database import PostgresAddress, PostgresDatabase, translated
from ray_multicluster_scheduler.store.postgres.notifier import ListenNotifier
from ray_multicluster_scheduler.store.schema.revision import (
    create_identity,
    create_tables,
    read_revision,
    upgrade,
)
from ray_multicluster_scheduler.store.schema.tables import REVISION, metadata
from ray_multicluster_scheduler.store.store import Store
from ray_multicluster_scheduler.store.transactions import read_changes

#: Before this version nobody wrote the log in a way that this store relies on.
LEAST_VERSION = 120000


def open_postgres_store(
    address: PostgresAddress,
    *,
    listen_at: PostgresAddress | None = None,
    create: bool = True,
    fallback_poll_s: float = FALLBACK_POLL_S,
) -> Store:
    """Open the store in a schema of a database; with `create`, make it if there is none.

    `listen_at` is where to receive notifications, if `address` is that of a pooler.
    """
    _prepare_schema(address, create=create)
    with contextlib.ExitStack() as undo:
        database = undo.enter_context(contextlib.closing(PostgresDatabase(address)))
        with database.write() as tx:  # of several servers that open it for the first time, one creates it
            database.time(tx, time.time())
            _migrate(tx, address, create=create)
        notifier = ListenNotifier(
            listen_at or address, _changes_of(database), fallback_poll_s=fallback_poll_s
        )
        store = Store(database, notifier, HolderLocks(None))
        undo.pop_all()
    return store


@contextlib.contextmanager
def existing_schema(address: PostgresAddress) -> Iterator[PostgresDatabase]:
    """Open the database of a store as it is: it is neither created nor brought to another schema."""
    _prepare_schema(address, create=False)
    with contextlib.closing(PostgresDatabase(address)) as database:
        with database.read() as tx:
            if read_revision(tx) is None:
                raise _no_store(address)
        yield database


@contextlib.contextmanager
def new_schema(address: PostgresAddress) -> Iterator[tuple[PostgresDatabase, Connection]]:
    """Make a store with empty tables in a schema. It is there when the block has ended well."""
    _prepare_schema(address, create=True)
    with contextlib.closing(PostgresDatabase(address)) as database, database.hold() as tx:
        if inspect(tx).get_table_names():
            raise StoreError(
                f"there are tables in {address} already. Name another schema with ?schema=NAME; or stop all "
                f"programs that use this one, and rename it: "
                f"ALTER SCHEMA {address.schema} RENAME TO {address.schema}_old"
            )
        _copy_index_conditions()
        create_tables(tx)
        yield database, tx


def _prepare_schema(address: PostgresAddress, *, create: bool) -> None:
    """Check the server, and create the schema of a new store."""
    with translated(str(address)), psycopg.connect(address.connection_string, autocommit=True) as connection:
        if connection.info.server_version < LEAST_VERSION:
            raise StoreError(
                f"the job store {address}: PostgreSQL {LEAST_VERSION // 10000} or later is needed, and the "
                f"server has {connection.info.parameter_status('server_version')}"
            )
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreError(
                f"the job store {address}: its database has the encoding {encoding}; create one with "
                "`createdb --encoding=UTF8 --template=template0`"
            )
        found = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [address.schema])
        if found.fetchone() is None:
            if not create:
                raise _no_store(address)
            # IF NOT EXISTS does not see a schema that somebody else is about to commit.
            with contextlib.suppress(psycopg.errors.UniqueViolation, psycopg.errors.DuplicateSchema):
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {address.schema}")


def _migrate(tx: Connection, address: PostgresAddress, *, create: bool) -> None:
    revision = read_revision(tx)
    if revision is None:
        if inspect(tx).get_table_names():
            raise ForeignStore(
                f"the schema {address.schema!r} of {address} has tables, but not those of a job store; "
                "name another one with ?schema=NAME"
            )
        if not create:
            raise _no_store(address)
        _copy_index_conditions()
        create_tables(tx)
        create_identity(tx)
    elif revision != REVISION:
        upgrade(tx, revision=revision)


def _copy_index_conditions() -> None:
    """Let partial indexes be partial here too: `tables` gives their conditions for SQLite only."""
    for table in metadata.tables.values():
        for index in table.indexes:
            where = index.dialect_options["sqlite"]["where"]
            if where is not None:
                index.dialect_options["postgresql"]["where"] = where


def _no_store(address: PostgresAddress) -> StoreError:
    return StoreError(f"there is no job store in {address}; the first submitted job makes one")


def _changes_of(database: PostgresDatabase) -> Callable[[], int]:
    def changes() -> int:
        with database.read() as tx:
            return read_changes(tx)

    return changes
