"""Statements for frequent use. They are compiled once, and their values go to the driver as they are.

SQLAlchemy processes a statement and each value of each row anew at every call, which takes several times as
long as the database needs. The compiled text never changes, so it is made once. Values need no conversion
except to JSON. The statements stay neutral: the dialect of the connection decides on their text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any

from sqlalchemy import (
    JSON,
    BindParameter,
    Connection,
    CursorResult,
    Delete,
    Dialect,
    Insert,
    Select,
    Update,
    bindparam,
)

from ray_multicluster_scheduler.store.schema.rows import to_json

Row = Mapping[str, Any]

#: Ids in one statement: far below SQLite's limit for parameters.
_CHUNK = 1024
#: Compiled texts to remember for each statement. Beyond that, a text is compiled again.
_COMPILED = 32


def chunks(values: Sequence[str]) -> Iterator[Sequence[str]]:
    """Cut a list of any length into pieces that fit into one statement."""
    return (values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK))


class Prepared:
    """An INSERT, UPDATE or DELETE for many rows. All rows of a call have the same keys.

    With `json_as_text`, the values of JSON columns are texts already.
    """

    def __init__(self, statement: Insert | Update | Delete, *, json_as_text: bool = False) -> None:
        self._statement = statement
        self._json = frozenset(
            column.name
            for column in statement.table.columns
            if isinstance(column.type, JSON) and not json_as_text
        )
        self._compiled = lru_cache(maxsize=_COMPILED)(self._compile)

    def run(self, tx: Connection, rows: Sequence[Row]) -> int:
        """Run it for each row; return how many rows of the table were changed."""
        if not rows:
            return 0
        text, values = self._compiled(tx.dialect, tuple(rows[0]))
        return tx.exec_driver_sql(text, [values(row) for row in rows]).rowcount

    def _compile(self, dialect: Dialect, names: tuple[str, ...]) -> tuple[str, Callable[[Row], Any]]:
        compiled = self._statement.compile(dialect=dialect, column_keys=list(names), for_executemany=True)
        positions = compiled.positiontup  # None: the driver takes values by name
        columns = [
            (name, name in self._json) for name in (compiled.binds if positions is None else positions)
        ]

        def by_name(row: Row) -> dict[str, Any]:
            return {name: to_json(row[name]) if is_json else row[name] for name, is_json in columns}

        def by_position(row: Row) -> tuple[Any, ...]:
            return tuple([to_json(row[name]) if is_json else row[name] for name, is_json in columns])

        return str(compiled), by_name if positions is None else by_position


class Fixed:
    """A statement without parameters."""

    def __init__(self, statement: Select[Any] | Update) -> None:
        self._compiled = lru_cache(maxsize=_COMPILED)(lambda dialect: str(statement.compile(dialect=dialect)))
        assert not statement.compile().binds, "literal values only"

    def run(self, tx: Connection) -> CursorResult[Any]:
        """Run it; return the result."""
        return tx.exec_driver_sql(self._compiled(tx.dialect))


class ForIds:
    """A statement about jobs `IN` a list of ids. `make` builds it from one parameter for each id."""

    def __init__(self, make: Callable[[Sequence[BindParameter[str]]], Select[Any] | Update | Delete]) -> None:
        self._make = make
        self._compiled = lru_cache(maxsize=_COMPILED)(self._compile)

    def run(self, tx: Connection, ids: Sequence[str]) -> int:
        """Run an UPDATE or DELETE for all ids; return how many rows were changed."""
        return sum(result.rowcount for result in self._results(tx, ids))

    def rows(self, tx: Connection, ids: Sequence[str]) -> list[Sequence[Any]]:
        """Return all rows of a SELECT."""
        return [row for result in self._results(tx, ids) for row in result.all()]

    def _results(self, tx: Connection, ids: Sequence[str]) -> Iterator[CursorResult[Any]]:
        for chunk in chunks(ids):
            # Only powers of two are compiled. A shorter list is filled up by repeating its last id.
            size = 1 << (len(chunk) - 1).bit_length()
            text, names = self._compiled(tx.dialect, size)
            values = (*chunk, *repeat(chunk[-1], size - len(chunk)))
            yield tx.exec_driver_sql(text, values if names is None else dict(zip(names, values, strict=True)))

    def _compile(self, dialect: Dialect, size: int) -> tuple[str, list[str] | None]:
        names = [f"id_{number}" for number in range(size)]
        compiled = self._make([bindparam(name) for name in names]).compile(dialect=dialect)
        assert len(compiled.binds) == size, "only the ids may be parameters"
        return str(compiled), None if compiled.positional else names
