"""Add many rows at once with COPY."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import sql
from sqlalchemy import Connection, Table


def add_rows(tx: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows, which all have all columns."""
    names = [column.name for column in table.columns]
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(table.name), sql.SQL(", ").join(map(sql.Identifier, names))
    )
    connection = tx.connection.driver_connection
    assert connection is not None
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row([row[name] for name in names])
