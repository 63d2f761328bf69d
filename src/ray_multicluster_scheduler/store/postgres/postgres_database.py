"""Connections and transactions on PostgreSQL.

**One writer at a time.** A write begins with an advisory lock of its transaction, the equal of SQLite's BEGIN
IMMEDIATE: numbers are given in the order of commits, a check holds until its commit, and a former leader
cannot write after its successor has.

**The lock does not wait for the disk.** The transaction commits without waiting for its log to be flushed.
That ends the lock, and others see the change. Then a second, tiny transaction waits for the flush, together
with those of all other writers. Only then does `write` return. A change that others have seen may so be lost
in a crash, but then whatever they have written after it is lost too, because the log is flushed in order.

Nothing outlives a transaction on its connection except prepared statements, and behind a pooler there are
none: it may give each transaction another connection of the server.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine, Table, Transaction, create_engine, event
from sqlalchemy.exc import DBAPIError, DisconnectionError
from sqlalchemy.pool import QueuePool

from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.model.retention import Space
from ray_multicluster_scheduler.store.postgres import copy_in, serial_numbers
from ray_multicluster_scheduler.store.postgres.postgres_errors import outcome_unknown, translated
from ray_multicluster_scheduler.store.postgres.postgres_url import PostgresAddress
from ray_multicluster_scheduler.store.schema.rows import to_json

#: How long a writer waits for the others.
BUSY_TIMEOUT_S = 30
#: A process that stands still inside a transaction keeps all others from writing. Its transaction is ended.
IDLE_TIMEOUT_S = 10
#: A connection that was unused for longer is tried before it is used: the server may have been restarted.
UNTRIED_S = 1.0
#: More connections than this are closed when they are not needed any more.
KEPT_CONNECTIONS = 8

#: A statement is prepared when a connection runs it for this many times: that is most of the server's work.
PREPARED_FROM = 2
#: A smaller difference is that of the way to the server and back.
LEAST_STEP_S = 0.1

_WRITE = {"raymc_write": True}
_FLUSH = "BEGIN; SET LOCAL synchronous_commit = on; SELECT pg_logical_emit_message(true, 'raymc', ''); COMMIT"
_USED = "last_used"


class PostgresDatabase:
    """`backend.Database` on PostgreSQL."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._closed = False
        #: Writers of one process take turns here, so that each process waits for the others only once.
        self._writing = threading.Lock()
        self.took: Callable[[str, float], None] = _measure_nothing
        #: Seconds to add to the time of this machine to get that of the server.
        self.ahead_s = 0.0
        self._engine = _new_engine(address)
        self._pool = self._engine.pool
        _open.add(self)

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction that sees one consistent moment of the store."""
        begun = time.perf_counter()
        with self._usable(), self._engine.connect() as connection, connection.begin():
            yield connection
        self.took("read", time.perf_counter() - begun)

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that writes. It is the only writer, and its changes are on disk when it ends."""
        begun = time.perf_counter()
        with self._usable(), self._engine.connect() as connection:
            with self._writing, contextlib.ExitStack() as undo:
                transaction = connection.execution_options(**_WRITE).begin()
                undo.callback(_roll_back, transaction)
                yield connection
                undo.pop_all()
                commits = time.perf_counter()
                with self._committing():
                    transaction.commit()
            with self._committing():
                connection.connection.cursor().execute(_FLUSH)
        ended = time.perf_counter()
        self.took("commit", ended - commits)
        self.took("write", ended - begun)

    @contextlib.contextmanager
    def hold(self) -> Iterator[Connection]:
        """Open a transaction that writes and may last for long: the server does not end it."""
        with self.write() as tx:
            tx.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
            yield tx

    def damage(self, tx: Connection) -> list[str]:  # noqa: ARG002
        """Return nothing: the server itself says when it reads something that is damaged."""
        return []

    def add_rows(self, tx: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows with COPY, which is several times as fast as INSERT."""
        copy_in.add_rows(tx, table, rows)

    def last_numbers(self, tx: Connection) -> dict[str, int]:
        """Return the last number of each numbered table."""
        return serial_numbers.last_numbers(tx)

    def continue_after(self, tx: Connection, numbers: Mapping[str, int]) -> None:
        """Let the next number in each of these tables be larger."""
        serial_numbers.continue_after(tx, numbers)

    def time(self, tx: Connection, own: float) -> float:  # noqa: ARG002
        """Return the time of the server: the machines of a store need not agree about theirs."""
        now: float = tx.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())::float8").scalar_one()
        ahead_s = now - time.time()
        if abs(ahead_s - self.ahead_s) > LEAST_STEP_S:
            self.ahead_s = ahead_s
        return now

    def used_bytes(self, tx: Connection) -> int:  # noqa: ARG002
        """Return 0: the server reuses the space of deleted rows, and tells nobody how much of it is used."""
        return 0

    def space(self, tx: Connection) -> Space:
        """Return the size of the tables."""
        total: int = tx.exec_driver_sql(
            "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class "
            "WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
        ).scalar_one()
        return Space(file_bytes=total, used_bytes=total)

    def can_shrink(self, tx: Connection) -> bool:  # noqa: ARG002
        """Return True: the server's own upkeep (autovacuum) lets free space be used again."""
        return True

    def shrink(self, tx: Connection, *, most_bytes: int) -> bool:  # noqa: ARG002
        """Do nothing: see `can_shrink`."""
        return False

    def rewrite(self) -> None:
        """Do nothing: see `can_shrink`."""

    def flush(self) -> None:
        """Do nothing: see `can_shrink`."""

    def close(self) -> None:
        """Close all connections; later calls raise `StoreError`."""
        self._closed = True
        self._pool.dispose()

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        if self._closed:
            raise StoreError("this job store is closed")
        try:
            with translated(str(self._address)):
                yield
        finally:
            if self._closed:  # meanwhile: the connection has just come back
                self._pool.dispose()

    @contextlib.contextmanager
    def _committing(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, psycopg.Error) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            raise outcome_unknown(str(self._address), cause or error) from error

    def forget_connections(self) -> None:
        """Leave the connections to the parent process: two processes cannot share one.

        So it is with the lock: the thread that holds it goes on in the parent only.
        """
        self._writing = threading.Lock()
        self._engine.dispose(close=False)
        self._pool = self._engine.pool


def _after_fork() -> None:
    for database in _open:
        database.forget_connections()


#: The databases of this process.
_open: weakref.WeakSet[PostgresDatabase] = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)


def _roll_back(transaction: Transaction) -> None:
    with contextlib.suppress(DBAPIError):  # a lost connection is rolled back by the server
        transaction.rollback()


def _measure_nothing(kind: str, seconds: float) -> None:
    """The default for `took`: nothing is measured."""


def _new_engine(address: PostgresAddress) -> Engine:
    conninfo = address.connection_string
    engine = create_engine(
        "postgresql+psycopg://",
        hide_parameters=True,  # an error must not carry the environment variables of a job into a log
        json_serializer=to_json,
        poolclass=QueuePool,
        pool_size=KEPT_CONNECTIONS,
        max_overflow=-1,
        creator=lambda: _connect(conninfo),
    )
    prefix = f"SET LOCAL search_path = {address.schema}"
    read = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {prefix}"
    write = (
        f"BEGIN; {prefix}; SET LOCAL synchronous_commit = off; SET LOCAL lock_timeout = '{BUSY_TIMEOUT_S}s'; "
        f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_TIMEOUT_S}s'; "
        f"SELECT pg_advisory_xact_lock(hashtextextended('raymc {address.schema}', 0))"
    )

    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("raymc_write")
        connection.exec_driver_sql(write if writes else read)

    event.listen(engine, "begin", begin)
    event.listen(engine, "checkin", _on_checkin)
    event.listen(engine, "checkout", _on_checkout)
    return engine


def _connect(conninfo: str) -> psycopg.Connection[tuple[Any, ...]]:
    connection = psycopg.connect(conninfo, autocommit=True, prepare_threshold=PREPARED_FROM)
    (process,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (None,)
    if process != connection.info.backend_pid:
        # A pooler answered: the next transaction may run where nothing was prepared.
        connection.prepare_threshold = None
    # Whoever listens through a pooler leaves the LISTEN on a connection that others then use. Without a
    # handler, the driver would collect the notifications until somebody asks for them.
    connection.add_notify_handler(_ignore)
    return connection


def _ignore(_notification: psycopg.Notify) -> None:
    """Do nothing: `ListenNotifier` has a connection of its own."""


def _on_checkin(_connection: object, record: Any) -> None:
    record.info[_USED] = time.monotonic()


def _on_checkout(connection: Any, record: Any, _proxy: object) -> None:
    if time.monotonic() - record.info.get(_USED, time.monotonic()) > UNTRIED_S:
        try:
            connection.execute("SELECT 1")
        except psycopg.Error as problem:
            raise DisconnectionError(str(problem)) from problem
