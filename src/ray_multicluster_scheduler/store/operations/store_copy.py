"""Copy all rows of a store into the empty tables of another one, whatever databases they are on.

Rows are read as a stream and written in small batches, so that the memory does not grow with the store.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any

from sqlalchemy import JSON, Connection, Table, Text, cast, delete, func, select, update

from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.store.backend import Database
from ray_multicluster_scheduler.store.operations.store_identity import read_store_id
from ray_multicluster_scheduler.store.schema.tables import lease, logs, metadata, package_chunks, upkeep
from ray_multicluster_scheduler.text.storable import storable

#: Rows that are in memory at once. A chunk of a package has 1 MiB, and a log may have several.
BATCH = 500
_SMALL_BATCHES = {package_chunks.name: 4, logs.name: 16}

#: Called with the rows that were copied so far, and with those that there are.
Progress = Callable[[int, int], None]


def copy_store(
    source: Database, read: Connection, target: Database, write: Connection, *, progress: Progress
) -> int:
    """Copy everything from one transaction into the other; return the number of rows.

    The target has its tables, which are empty but for the rows that every new store has. Raises `StoreError`
    if afterwards the target does not have the same number of rows everywhere, or another id.
    """
    tables = metadata.sorted_tables  # a row comes after those that it refers to
    counts = {table.name: _count(read, table) for table in tables}
    total, done = sum(counts.values()), 0
    write.execute(delete(upkeep))
    for table in tables:
        with closing(_batches(read, table)) as batches:  # a failure must not leave a cursor open
            for rows in batches:
                target.add_rows(write, table, rows)
                done += len(rows)
                progress(done, total)
    target.continue_after(write, source.last_numbers(read))
    copied = {table.name: _count(write, table) for table in tables}
    if copied != counts or read_store_id(write) != read_store_id(read):
        different = ", ".join(
            f"{name}: {copied[name]} of {count}" for name, count in counts.items() if copied[name] != count
        )
        raise StoreError(f"the copy is not complete ({different or 'it has another id'}); nothing was kept")
    return total


def end_lease(tx: Connection) -> None:
    """Let nobody hold the lease. The next leader has a larger epoch than all before it."""
    tx.execute(update(lease).values(holder=None))


def _count(tx: Connection, table: Table) -> int:
    return tx.scalar(select(func.count()).select_from(table)) or 0


def _batches(tx: Connection, table: Table) -> Generator[list[dict[str, Any]], None, None]:
    """Yield all rows. JSON stays the text that it is."""
    columns = [
        cast(column, Text).label(column.name) if isinstance(column.type, JSON) else column
        for column in table.columns
    ]
    size = _SMALL_BATCHES.get(table.name, BATCH)
    with tx.execute(select(*columns), execution_options={"yield_per": size}) as result:
        for rows in result.mappings().partitions():
            yield [
                {name: storable(value) if isinstance(value, str) else value for name, value in row.items()}
                for row in rows
            ]
