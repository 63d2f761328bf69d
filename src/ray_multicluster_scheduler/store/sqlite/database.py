"""Connections and transactions on SQLite. All transactions begin and end here, and errors are translated."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError
from sqlalchemy import Connection, Engine, Table, create_engine, event, insert
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.pool import QueuePool, StaticPool

from ray_multicluster_scheduler.errors import ForeignStore, InvalidRequest, StoreBusy, StoreError
from ray_multicluster_scheduler.model.storage import Space
from ray_multicluster_scheduler.store.schema.prepared import Prepared
from ray_multicluster_scheduler.store.schema.rows import to_json
from ray_multicluster_scheduler.store.sqlite import forks
from ray_multicluster_scheduler.store.sqlite.files import HOW_TO_SAVE_WAL, wal_files

BUSY_TIMEOUT_S = 30
_WRITE = {"raymc_write": True}

#: What SQLite's messages mean for the user. (Its result codes reach Python only from 3.11 on.)
_EXPLANATIONS = {
    "database or disk is full": "the disk is full; nothing was written. Free some space and try again",
    "database is locked": (
        f"another process kept it locked for more than {BUSY_TIMEOUT_S} s; nothing was written. "
        "Try again, and look for a stopped `raymc` process"
    ),
    "disk I/O error": (
        "the disk reported an error, so what was written last may not be safe. "
        "This process writes no more; check the disk, then start again"
    ),
    "file is not a database": "the file is damaged or not a job store; restore it from a backup",
    "database disk image is malformed": "the file is damaged; restore it from a backup",
    "attempt to write a readonly database": "it cannot be written; check owner and modes of the files",
    "unable to open database file": "it cannot be opened; check owner and modes of the files",
}
#: Begins the message of the driver about a value of a type that SQLite does not have.
_BAD_VALUE = "Error binding parameter"
_ENABLE_SHRINKING = "PRAGMA auto_vacuum=INCREMENTAL"
_INCREMENTAL = 2
#: Free pages up to this share are kept for new rows: returning them would only cost time.
_SPARE_SHARE = 0.1
#: One damaged page may cause many messages; the first ones say enough.
_MOST_MESSAGES = 10
#: A write-ahead log that has grown longer is cut to this size.
_WAL_BYTES = 64 * 2**20
_FATAL = "disk I/O error"
_TEMPORARY = frozenset({"database or disk is full", "database is locked"})


class SqliteDatabase:
    """`backend.Database` on SQLite, in a file or (without a path) in memory.

    Writers of one process wait on a lock, because SQLite itself would sleep for longer and longer times.
    Writers of different processes wait for each other in SQLite. Readers of a file never wait.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._writing = threading.Lock()
        #: In memory all threads share one connection, so readers have to take turns too.
        self._reading = self._writing if path is None else contextlib.nullcontext()
        #: The identities of the files when they were opened.
        self._files = {} if path is None else {path: _identity(path)}
        #: Set after a failed fsync: the disk may hold anything, so nothing may be written any more.
        self._broken: StoreError | None = None
        self._closed = False
        self.ahead_s = 0.0
        #: Called with the duration of each read, write (including the wait for other writers) and commit.
        self.took: Callable[[str, float], None] = _measure_nothing
        self._engine = _new_engine(path)
        #: Kept after a commit: writers take turns anyway, and a new connection costs much of a small write.
        self._writer: Connection | None = None
        if path is not None:
            forks.reconnect_at_forks(self, path.parent)

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction that sees one consistent moment of the store."""
        begun = time.perf_counter()
        with (
            self._reading,
            self._translated_errors(),
            self._engine.connect() as connection,
            connection.begin(),
        ):
            yield connection
        self.took("read", time.perf_counter() - begun)

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that writes. It is the only writer, and its changes are on disk when it ends."""
        begun = time.perf_counter()
        with self._writing, self._translated_errors():
            self._check_may_write()
            connection, self._writer = self._writer or self._engine.connect(), None
            try:
                with connection.execution_options(**_WRITE).begin():
                    yield connection
                    commits = time.perf_counter()
            except BaseException:
                connection.close()  # not kept: it may have been interrupted anywhere
                raise
            self._writer = connection
        ended = time.perf_counter()
        self.took("commit", ended - commits)
        self.took("write", ended - begun)

    def hold(self) -> contextlib.AbstractContextManager[Connection]:
        """Open a transaction that writes and may last for long."""
        return self.write()

    def damage(self, tx: Connection) -> list[str]:
        """Return what SQLite finds damaged, and rows that refer to rows that there are not."""
        found = [str(row[0]) for row in tx.exec_driver_sql(f"PRAGMA integrity_check({_MOST_MESSAGES})")]
        if found == ["ok"]:
            found = []
        counts: dict[tuple[str, str], int] = {}
        for table, _row, parent, _key in tx.exec_driver_sql("PRAGMA foreign_key_check"):
            counts[table, parent] = counts.get((table, parent), 0) + 1
        return found + [
            f"{count} rows of {table} refer to rows of {parent} that are missing"
            for (table, parent), count in counts.items()
        ]

    def add_rows(self, tx: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows; JSON is a text already."""
        Prepared(insert(table), json_as_text=True).run(tx, rows)

    def last_numbers(self, tx: Connection) -> dict[str, int]:
        """Return the last number of each numbered table that has ever had a row.

        SQLite never gives a number twice, also if the newest row was deleted.
        """
        rows = tx.exec_driver_sql("SELECT name, seq FROM sqlite_sequence").all()
        return {row.name: row.seq for row in rows}

    def continue_after(self, tx: Connection, numbers: Mapping[str, int]) -> None:
        """Let the next number in each of these tables be larger."""
        own = self.last_numbers(tx)
        for name, number in numbers.items():
            if name not in own:  # SQLite makes the row when the table gets its first row
                tx.exec_driver_sql("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, number))
            elif own[name] < number:
                tx.exec_driver_sql("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (number, name))

    def enable_shrinking(self) -> None:
        """Let `shrink` work. Call it before the first page of a new file is written."""
        with self._translated_errors(), contextlib.closing(self._engine.raw_connection()) as connection:
            connection.cursor().execute(_ENABLE_SHRINKING).close()

    def use_wal(self, *, new: bool) -> None:
        """Let readers and the writer work at the same time. The setting is kept in the file.

        Shrinking must be enabled before the first page of a new file is written. It takes the writer's lock,
        so an existing file is not touched: opening it for reading must not wait for a writer.
        """
        if new:
            self.enable_shrinking()
        with self._translated_errors(), contextlib.closing(self._engine.raw_connection()) as connection:
            cursor = connection.cursor()
            (mode,) = cursor.execute("PRAGMA journal_mode=WAL").fetchone()
            cursor.close()
        if mode != "wal":
            raise StoreError(
                f"the job store {self._path} cannot use a write-ahead log (its mode is {mode!r}); "
                "it must be on a local disk: move it there with RAY_MULTICLUSTER_HOME"
            )
        with self.read() as tx:
            self._open_wal(tx)

    def disconnect(self) -> None:
        """Close all connections until `reconnect`; call it while no transaction is open."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        self._engine.dispose()

    def reconnect(self) -> None:
        """Open the write-ahead log again. Its files must exist as long as the store is in use."""
        if not self._closed:
            with self._engine.connect() as connection, connection.begin():
                self._open_wal(connection)

    def _open_wal(self, tx: Connection) -> None:
        assert self._path is not None
        tx.exec_driver_sql("SELECT 1 FROM sqlite_master").first()  # the first read opens the log
        self._files |= {path: _identity(path) for path in wal_files(self._path)}

    def rewrite(self) -> None:
        """Write the whole database anew, without free space, and enable shrinking from now on.

        Nobody can write in the meantime, and it needs the same space once more until it is done.
        """
        with self._writing, self._translated_errors():
            self._check_may_write()
            with contextlib.closing(self._engine.raw_connection()) as connection:
                cursor = connection.cursor()
                for statement in (_ENABLE_SHRINKING, "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
                    cursor.execute(statement).fetchall()
                cursor.close()

    def flush(self) -> None:
        """Copy the write-ahead log into the database, and cut both to the size that they need."""
        with self._writing, self._translated_errors():
            self._check_may_write()
            with contextlib.closing(self._engine.raw_connection()) as connection:
                connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def time(self, tx: Connection, own: float) -> float:  # noqa: ARG002
        """Return the time of this machine: all processes of this store run on it."""
        return own

    def used_bytes(self, tx: Connection) -> int:
        """Return how many bytes of the database hold data."""
        return (_pragma(tx, "page_count") - _pragma(tx, "freelist_count")) * _pragma(tx, "page_size")

    def space(self, tx: Connection) -> Space:
        """Return the size of the database, and how much of it holds data."""
        size = _pragma(tx, "page_count") * _pragma(tx, "page_size")
        return Space(file_bytes=size, used_bytes=self.used_bytes(tx))

    def can_shrink(self, tx: Connection) -> bool:
        """Tell whether `shrink` can return free space. If not, only `rewrite` can."""
        return _pragma(tx, "auto_vacuum") == _INCREMENTAL

    def shrink(self, tx: Connection, *, most_bytes: int) -> bool:
        """Return some free space to the file system; tell whether there is more to return."""
        pages, free = _pragma(tx, "page_count"), _pragma(tx, "freelist_count")
        if not self.can_shrink(tx) or free <= pages * _SPARE_SHARE:
            return False
        step = max(1, most_bytes // _pragma(tx, "page_size"))
        cursor = tx.connection.cursor()
        for _ in range(min(free, step)):  # the driver makes one step of this statement: it frees one page
            cursor.execute("PRAGMA incremental_vacuum(1)")
        cursor.close()
        return free > step

    def close(self) -> None:
        """Close all connections; later calls raise `StoreError`."""
        with self._writing:
            self._closed = True
            self.disconnect()

    def _check_may_write(self) -> None:
        if self._broken:
            raise self._broken
        for path, opened in self._files.items():
            if _identity(path) == opened:
                continue
            if path == self._path:
                raise ForeignStore(
                    f"the job store {path} was deleted or replaced while it was in use; nothing was "
                    "written. Stop all raymc processes, put the file back, then start again"
                )
            self._save_wal(path)
            raise StoreError(
                f"{path} was removed while the job store was in use; nothing was written. {HOW_TO_SAVE_WAL}"
            )

    def _save_wal(self, path: Path) -> None:
        """Copy what was committed into the database, unless another process has begun a new log."""
        if not path.exists():
            with contextlib.closing(self._engine.raw_connection()) as connection:
                connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)").close()

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        if self._closed:
            raise StoreError("this job store is closed")
        try:
            with forks.no_forks():
                yield
        except UnicodeEncodeError as error:  # raised by the driver: the text holds bytes that were not UTF-8
            raise InvalidRequest(
                f"{error.object[:80]!r} is not valid Unicode text, so it can neither be stored nor looked for"
            ) from None
        except (OverflowError, PydanticSerializationError) as error:
            raise _unstorable(error) from error
        except (StatementError, sqlite3.Error) as error:
            cause = error.orig if isinstance(error, StatementError) else error
            message = str(cause)
            if not isinstance(error, (DBAPIError, sqlite3.Error)) or _BAD_VALUE in message:
                raise _unstorable(cause) from error
            kind = StoreBusy if message in _TEMPORARY else StoreError
            problem = kind(
                f"the job store {self._path or 'in memory'}: {_EXPLANATIONS.get(message, message)}"
            )
            if message == _FATAL:
                self._broken = problem
            raise problem from error


def _pragma(tx: Connection, name: str) -> int:
    value: int = tx.exec_driver_sql(f"PRAGMA {name}").scalar_one()
    return value


def _measure_nothing(kind: str, seconds: float) -> None:
    """The default for `took`: nothing is measured."""


def _unstorable(cause: BaseException | None) -> InvalidRequest:
    return InvalidRequest(
        "a value can neither be stored nor looked for: texts must be valid Unicode, numbers must fit into "
        f"64 bits, and nothing else than these can be kept ({cause})"
    )


def _identity(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


def _new_engine(path: Path | None) -> Engine:
    # hide_parameters: an error must not carry the environment variables of a job into a log.
    if path is None:
        engine = create_engine(
            "sqlite://",
            hide_parameters=True,
            json_serializer=to_json,
            poolclass=StaticPool,
            connect_args={"check_same_thread": False},
        )
    else:
        engine = create_engine(
            "sqlite://",
            hide_parameters=True,
            json_serializer=to_json,
            poolclass=QueuePool,
            pool_size=0,  # no limit: each thread may have its own connection
            creator=lambda: sqlite3.connect(os.fspath(path), check_same_thread=False),
        )
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)
    return engine


def _on_connect(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver must not begin transactions: _on_begin does
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_S * 1000}")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute(f"PRAGMA journal_size_limit={_WAL_BYTES}")
    cursor.close()


def _on_begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("raymc_write")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
