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
import logging
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import errors as codes
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pydantic_core import PydanticSerializationError
from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    Table,
    Transaction,
    create_engine,
    event,
    literal_column,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError, StatementError
from sqlalchemy.pool import QueuePool

from ray_multicluster_scheduler.errors import InvalidRequest, StoreBusy, StoreError, StoreOutcomeUnknown
from ray_multicluster_scheduler.model.storage import Space
from ray_multicluster_scheduler.store.schema.rows import to_json
from ray_multicluster_scheduler.store.schema.tables import metadata

# The address of a PostgreSQL store: `postgresql://user@host:5432/database?schema=raymc`.
#
# The password is never part of what is shown. It may come from a file, so that it stands in no configuration.

log = logging.getLogger(__name__)

DEFAULT_SCHEMA = "raymc"
#: Names that need no quotes, so that they can stand in any statement.
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
#: What libpq would take in the query too.
_SECRET = frozenset({"password", "sslpassword"})
_EXAMPLE = "postgresql://user@host:5432/database"
#: A machine that vanishes is noticed within this time, not within TCP's two hours.
_NETWORK = {
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """Where a store is, and how to log in there."""

    url: URL
    schema: str

    def __str__(self) -> str:
        """Return the address without its password."""
        shown = URL.create(
            self.url.drivername, self.url.username, None, self.url.host, self.url.port, self.url.database
        )
        return f"{shown}?schema={self.schema}"

    def __repr__(self) -> str:
        """Return the same: a password must not get into a traceback."""
        return f"PostgresAddress({self})"

    @property
    def connection_string(self) -> str:
        """Return what the driver connects with. It holds the password.

        Not as a URL: libpq and SQLAlchemy do not agree on how a space is written in one, and libpq's message
        about it would show the password.
        """
        url = self.url
        query = {
            name: value if isinstance(value, str) else ",".join(value) for name, value in url.query.items()
        }
        named = {"user": url.username, "password": url.password, "host": url.host, "dbname": url.database}
        given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
        if url.port is not None:
            given["port"] = url.port
        return make_conninfo("", **{**_NETWORK, **query, **given})


def postgres_address(text: str, *, password_file: Path | None = None) -> PostgresAddress:
    """Read an address; raises `StoreError` that shows no password."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise StoreError(f"the address of the job store cannot be read; write {_EXAMPLE}") from None
    if url.get_backend_name() not in {"postgresql", "postgres"} or not url.database:
        raise StoreError(f"the address of the job store names no PostgreSQL database; write {_EXAMPLE}")
    if url.password or _SECRET & url.query.keys():
        raise StoreError(
            "the address of the job store holds a password, which others may read; put it into a file and "
            "name that as store_password_file, or use PGPASSFILE or PGPASSWORD"
        )
    schema = url.query.get("schema", DEFAULT_SCHEMA)
    if not isinstance(schema, str) or not _SCHEMA.fullmatch(schema):
        raise StoreError(
            f"the schema of the job store is {schema!r}; use small letters, digits and underscores only"
        )
    if password_file is not None:
        url = url.set(password=_read(password_file))
    return PostgresAddress(url.set(drivername="postgresql").difference_update_query(["schema"]), schema)


def _read(path: Path) -> str:
    try:
        status = path.stat()
        if status.st_uid == os.geteuid() and status.st_mode & 0o077:
            log.warning("others may read the password of the job store in %s: chmod 600 %s", path, path)
        return path.read_text().rstrip("\n")
    except OSError as problem:
        raise StoreError(
            f"the password of the job store cannot be read from {path}: {problem.strerror}"
        ) from None
    except UnicodeDecodeError:
        raise StoreError(f"the password of the job store cannot be read from {path}: it is no text") from None


#: It works again by itself, or when somebody has mended the server; nothing was written.
_PASSING = (
    codes.OperationalError,
    codes.InterfaceError,
    codes.SerializationFailure,
    codes.DeadlockDetected,
    codes.LockNotAvailable,
    codes.IdleInTransactionSessionTimeout,
    codes.ReadOnlySqlTransaction,  # until the failover is complete
    codes.DiskFull,
)
#: The same, by its code: not every version of the driver has a name for it.
_TRANSACTION_TIMEOUT = "25P04"
#: Their details show rows and values.
_WITH_VALUES = (psycopg.IntegrityError, psycopg.DataError)
_SENTENCES: dict[type[Exception], str] = {
    codes.LockNotAvailable: "another process kept it locked for too long; nothing was written. Try again",
    codes.IdleInTransactionSessionTimeout: "this process stood still while it wrote; nothing was written",
    codes.DiskFull: "its disk is full; nothing was written. Free some space and try again",
    codes.InsufficientPrivilege: "its user may not do this; grant it the rights on the schema",
    codes.InvalidPassword: "the password is wrong",
    codes.ReadOnlySqlTransaction: "it cannot be written: the server is a standby, or read-only",
}


@contextlib.contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn the errors of the driver into ours. They carry no values: those may be secrets."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"{error.object[:80]!r} is not valid Unicode text, so it can neither be stored nor looked for"
        ) from None
    except (OverflowError, PydanticSerializationError) as error:
        raise _unstorable(error) from error
    except (StatementError, psycopg.Error) as error:
        cause = error.orig if isinstance(error, StatementError) else error
        # Not even a traceback shows what may be the environment of a job.
        raise _translated(where, error, cause) from None if isinstance(cause, _WITH_VALUES) else error


def outcome_unknown(where: str, cause: BaseException) -> StoreOutcomeUnknown:
    """Return the error for a connection that broke while a change was being committed."""
    return StoreOutcomeUnknown(
        f"the job store {where}: the connection broke off during a commit, so this may or may not have been "
        f"written ({_first_line(cause)}). Repeat it with the same submission_id or idempotency_key: then "
        "nothing is done twice"
    )


def _translated(where: str, error: Exception, cause: BaseException | None) -> Exception:
    if not isinstance(error, (DBAPIError, psycopg.Error)) or isinstance(cause, psycopg.DataError):
        return _unstorable(cause)
    sentence = next((text for kind, text in _SENTENCES.items() if isinstance(cause, kind)), None)
    passes = isinstance(cause, _PASSING) or getattr(cause, "sqlstate", None) == _TRANSACTION_TIMEOUT
    kind = StoreBusy if passes else StoreError
    return kind(f"the job store {where}: {sentence or _first_line(cause)}")


def _unstorable(cause: BaseException | None) -> InvalidRequest:
    return InvalidRequest(
        "a value can neither be stored nor looked for: texts must be valid Unicode without NUL, and numbers "
        f"must fit into 64 bits ({_first_line(cause)})"
    )


def _first_line(cause: BaseException | None) -> str:
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]


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
        names = [column.name for column in table.columns]
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
            sql.Identifier(table.name), sql.SQL(", ").join(map(sql.Identifier, names))
        )
        connection = tx.connection.driver_connection
        assert connection is not None
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row([row[name] for name in names])

    def last_numbers(self, tx: Connection) -> dict[str, int]:
        """Return the last number of each numbered table. Later ones may be given already."""
        found = {}
        for table, sequence in _sequences(tx):
            value: ColumnElement[int] = literal_column("CASE WHEN is_called THEN last_value END")
            number = tx.scalar(select(value).select_from(text(sequence)))
            if number is not None:
                found[table] = int(number)
        return found

    def continue_after(self, tx: Connection, numbers: Mapping[str, int]) -> None:
        """Let the next number in each of these tables be larger."""
        own = self.last_numbers(tx)
        for table, sequence in _sequences(tx):
            if table in numbers and own.get(table, 0) < numbers[table]:
                tx.exec_driver_sql(
                    "SELECT setval(%(name)s, %(number)s)", {"name": sequence, "number": numbers[table]}
                )

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


def _sequences(tx: Connection) -> Iterator[tuple[str, str]]:
    """Return the numbered tables, each with the sequence that its numbers come from."""
    for table in metadata.sorted_tables:
        column = table.autoincrement_column
        if column is not None:
            asked = {"table": table.name, "column": column.name}
            yield (
                table.name,
                tx.exec_driver_sql(
                    "SELECT pg_get_serial_sequence(%(table)s, %(column)s)", asked
                ).scalar_one(),
            )


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
