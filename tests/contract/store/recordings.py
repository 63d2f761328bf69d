"""Stores as former versions have made them, as SQL with rows in every table, for SQLite and PostgreSQL.

A store is made from the tables of its version, not by migrations, so a former one can only be had by
recording it. Record those of this version, once, when its schema is final:

python -m tests.contract.store.recordings
"""

import contextlib
import sqlite3
import tempfile
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy.dialects.postgresql import psycopg as dialect
from sqlalchemy.schema import CreateIndex, CreateTable
from tests.contract.store.filled_store import fill
from tests.support.postgres import a_postgres

from ray_multicluster_scheduler.store import open_store
from ray_multicluster_scheduler.store.postgres.database import PostgresAddress, postgres_address
from ray_multicluster_scheduler.store.postgres.opening import open_postgres_store
from ray_multicluster_scheduler.store.schema.tables import REVISION, metadata

FOLDER = Path(__file__).parent / "recordings"
#: The first revision.
FIRST = "r0001_pre"
#: Ends a statement. No text in a recorded row has such a line.
END = "\n;\n"


def recordings(kind: str) -> dict[str, Path]:
    """Return the recorded stores on one kind of database by their revisions."""
    return {path.stem: path for path in sorted((FOLDER / kind).glob("*.sql"))}


def play_on_postgres(address: PostgresAddress, revision: str) -> None:
    """Make a store as it was recorded."""
    statements = recordings("postgres")[revision].read_text().split(END)
    with psycopg.connect(address.connection_string) as connection:
        connection.execute(f"CREATE SCHEMA {address.schema}")
        connection.execute(f"SET LOCAL search_path = {address.schema}")
        for statement in filter(str.strip, statements):
            connection.execute(statement)


def play_on_sqlite(directory: Path, revision: str) -> None:
    """Make a store as it was recorded."""
    directory.mkdir(mode=0o700)
    with contextlib.closing(sqlite3.connect(directory / "jobs.db")) as connection:
        connection.executescript(recordings("sqlite")[revision].read_text())


def record_on_sqlite() -> str:
    """Return the SQL that makes a filled store of this version."""
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.closing(open_store(Path(folder) / "store")) as store:
            fill(store)
        with contextlib.closing(sqlite3.connect(Path(folder) / "store" / "jobs.db")) as connection:
            return "".join(f"{line}\n" for line in connection.iterdump())


def record_on_postgres(address: PostgresAddress) -> str:
    """Return the SQL that makes a filled store of this version."""
    with contextlib.closing(open_postgres_store(address)) as store:
        fill(store)
    statements = ["CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"]
    statements.append(f"INSERT INTO alembic_version VALUES ('{REVISION}')")
    for table in metadata.sorted_tables:
        statements.append(str(CreateTable(table).compile(dialect=dialect.dialect())).strip())
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements.extend(str(CreateIndex(index).compile(dialect=dialect.dialect())) for index in indexes)
    with psycopg.connect(address.connection_string) as connection:
        connection.execute(f"SET search_path = {address.schema}")
        for table in metadata.sorted_tables:
            statements.extend(_rows(connection, table.name, [column.name for column in table.columns]))
            number = table.autoincrement_column
            if number is not None:
                asked = f"SELECT last_value FROM {table.name}_{number.name}_seq"
                last = connection.execute(asked).fetchone()
                assert last is not None
                statements.append(f"SELECT setval('{table.name}_{number.name}_seq', {last[0]})")
    return "".join(f"{statement}{END}" for statement in statements)


def _rows(connection: psycopg.Connection, table: str, columns: list[str]) -> list[str]:
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in columns)
    rows = connection.execute(sql.SQL("SELECT {} FROM {} ORDER BY 1, 2").format(texts, sql.Identifier(table)))
    add = sql.SQL("INSERT INTO {} ({}) VALUES ({})")
    return [
        add.format(
            sql.Identifier(table),
            names,
            sql.SQL(", ").join(sql.SQL("NULL") if value is None else _quoted(value) for value in row),
        ).as_string(connection)
        for row in rows.fetchall()
    ]


def _quoted(value: str) -> sql.Composable:
    return sql.SQL("'{}'").format(sql.SQL(value.replace("'", "''")))


if __name__ == "__main__":
    for kind in ("postgres", "sqlite"):
        (FOLDER / kind).mkdir(parents=True, exist_ok=True)
    (FOLDER / "sqlite" / f"{REVISION}.sql").write_text(record_on_sqlite())
    with a_postgres() as server:
        recorded = record_on_postgres(postgres_address(server.url("recorded")))
    (FOLDER / "postgres" / f"{REVISION}.sql").write_text(recorded)
