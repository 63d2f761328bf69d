"""Whether a SQLite file is whole."""

from __future__ import annotations

from sqlalchemy import Connection

#: One damaged page may cause many messages; the first ones say enough.
MOST_MESSAGES = 10


def damage(tx: Connection) -> list[str]:
    """Return what SQLite finds damaged, and rows that refer to rows that there are not."""
    found = [str(row[0]) for row in tx.exec_driver_sql(f"PRAGMA integrity_check({MOST_MESSAGES})")]
    if found == ["ok"]:
        found = []
    counts: dict[tuple[str, str], int] = {}
    for table, _row, parent, _key in tx.exec_driver_sql("PRAGMA foreign_key_check"):
        counts[table, parent] = counts.get((table, parent), 0) + 1
    return found + [
        f"{count} rows of {table} refer to rows of {parent} that are missing"
        for (table, parent), count in counts.items()
    ]
