"""The numbers that PostgreSQL gives to new rows: one sequence for each numbered table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlalchemy import ColumnElement, Connection, literal_column, select, text

from ray_multicluster_scheduler.store.schema.tables import metadata


def last_numbers(tx: Connection) -> dict[str, int]:
    """Return the last number of each table that has ever had a row. Later numbers may be given already."""
    found = {}
    for table, sequence in _sequences(tx):
        value: ColumnElement[int] = literal_column("CASE WHEN is_called THEN last_value END")
        number = tx.scalar(select(value).select_from(text(sequence)))
        if number is not None:
            found[table] = int(number)
    return found


def continue_after(tx: Connection, numbers: Mapping[str, int]) -> None:
    """Let the next number in each of these tables be larger."""
    own = last_numbers(tx)
    for table, sequence in _sequences(tx):
        if table in numbers and own.get(table, 0) < numbers[table]:
            tx.exec_driver_sql(
                "SELECT setval(%(name)s, %(number)s)", {"name": sequence, "number": numbers[table]}
            )


def _sequences(tx: Connection) -> Iterator[tuple[str, str]]:
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
