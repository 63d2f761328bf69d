"""The numbers that SQLite gives to new rows. It never gives one twice, also if the newest row was deleted."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection


def last_numbers(tx: Connection) -> dict[str, int]:
    """Return the last number of each numbered table that has ever had a row."""
    rows = tx.exec_driver_sql("SELECT name, seq FROM sqlite_sequence").all()
    return {row.name: row.seq for row in rows}


def continue_after(tx: Connection, numbers: Mapping[str, int]) -> None:
    """Let the next number in each of these tables be larger."""
    own = last_numbers(tx)
    for name, number in numbers.items():
        if name not in own:  # SQLite makes the row when the table gets its first row
            tx.exec_driver_sql("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, number))
        elif own[name] < number:
            tx.exec_driver_sql("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (number, name))
