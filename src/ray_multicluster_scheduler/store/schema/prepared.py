"""Statements that are run for every job: compiled once, and their values go to the driver as they are.

SQLAlchemy looks at a statement and at each value of each row anew, which takes several times as long as the
database takes for the work. What it makes of a statement stays the same, so that is asked for once; values
need no more than JSON written out. Still one set of statements for every database: the dialect decides on
their text.
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

#: Ids in one statement: far below SQLite's limit of values.
_CHUNK = 1024
#: Stores in use times kinds of rows for one statement: more are compiled again, which only takes time.
_COMPILED = 32


def chunks(values: Sequence[str]) -> Iterator[Sequence[str]]:
    """Cut a list of any length into pieces that fit into one statement."""
    return (values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK))


class Prepared:
    """An INSERT, UPDATE or DELETE that is run with many rows. All rows of a call have the same keys."""

    def __init__(self, statement: Insert | Update | Delete) -> None:
        self._statement = statement
        self._json = frozenset(
            column.name for column in statement.table.columns if isinstance(column.type, JSON)
        )
        self._compiled = lru_cache(maxsize=_COMPILED)(self._compile)

    def run(self, tx: Connection, rows: Sequence[Row]) -> int:
        """Run it once for each row; return how many rows of the table that has touched."""
        if not rows:
            return 0
        text, values = self._compiled(tx.dialect, tuple(rows[0]))
        return tx.exec_driver_sql(text, [values(row) for row in rows]).rowcount

    def _compile(self, dialect: Dialect, names: tuple[str, ...]) -> tuple[str, Callable[[Row], Any]]:
        compiled = self._statement.compile(dialect=dialect, column_keys=list(names), for_executemany=True)
        placed = compiled.positiontup  # None: the driver wants values by name
        wanted = [(name, name in self._json) for name in (compiled.binds if placed is None else placed)]

        def by_name(row: Row) -> dict[str, Any]:
            return {name: to_json(row[name]) if is_json else row[name] for name, is_json in wanted}

        def by_place(row: Row) -> tuple[Any, ...]:
            return tuple([to_json(row[name]) if is_json else row[name] for name, is_json in wanted])

        return str(compiled), by_name if placed is None else by_place


class Fixed:
    """A statement without values."""

    def __init__(self, statement: Select[Any] | Update) -> None:
        self._compiled = lru_cache(maxsize=_COMPILED)(lambda dialect: str(statement.compile(dialect=dialect)))
        assert not statement.compile().binds, "literal values only"

    def run(self, tx: Connection) -> CursorResult[Any]:
        """Run it; of a SELECT, return what it found."""
        return tx.exec_driver_sql(self._compiled(tx.dialect))


class ForIds:
    """A statement about jobs `IN` a list of ids; it is made from the parameters that stand for them."""

    def __init__(self, make: Callable[[Sequence[BindParameter[str]]], Select[Any] | Update | Delete]) -> None:
        self._make = make
        self._compiled = lru_cache(maxsize=_COMPILED)(self._compile)

    def run(self, tx: Connection, ids: Sequence[str]) -> int:
        """Run an UPDATE or DELETE for all ids; return how many rows that has touched."""
        return sum(result.rowcount for result in self._results(tx, ids))

    def rows(self, tx: Connection, ids: Sequence[str]) -> list[Sequence[Any]]:
        """Return all rows that a SELECT finds."""
        return [row for result in self._results(tx, ids) for row in result.all()]

    def _results(self, tx: Connection, ids: Sequence[str]) -> Iterator[CursorResult[Any]]:
        for chunk in chunks(ids):
            # Few sizes are compiled: one that is too large is filled up with an id that is there anyway.
            size = 1 << (len(chunk) - 1).bit_length()
            text, names = self._compiled(tx.dialect, size)
            values = (*chunk, *repeat(chunk[-1], size - len(chunk)))
            yield tx.exec_driver_sql(text, values if names is None else dict(zip(names, values, strict=True)))

    def _compile(self, dialect: Dialect, size: int) -> tuple[str, list[str] | None]:
        names = [f"id_{number}" for number in range(size)]
        compiled = self._make([bindparam(name) for name in names]).compile(dialect=dialect)
        assert len(compiled.binds) == size, "only the ids may be parameters"
        return str(compiled), None if compiled.positional else names
