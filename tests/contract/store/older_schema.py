"""Take back what migrations have added to a SQLite database, to have one of a former version."""

import sqlite3

#: What each migration since then has added, newest first.
_ADDED = {
    "0016_pre": ("DROP TABLE waits",),
    "0015_pre": tuple(f"ALTER TABLE {table} DROP COLUMN end_unreported" for table in ("jobs", "attempts")),
    "0014_pre": (
        *(f"DROP INDEX ix_jobs_{name}" for name in ("heads", "heads_user", "heads_state", "members")),
        "DROP INDEX uq_jobs_head_group",
        "ALTER TABLE jobs DROP COLUMN head_group",
        "ALTER TABLE jobs DROP COLUMN head",
        "DROP INDEX ix_attempts_placed",
        "DROP INDEX ix_attempts_ended",
    ),
    "0013_pre": ("DROP TABLE package_chunks", "DROP TABLE packages", "DROP TABLE uploads"),
}


def bring_back(connection: sqlite3.Connection) -> None:
    """Let a database have the schema 0012_pre."""
    for statements in _ADDED.values():
        for statement in statements:
            connection.execute(statement)
    connection.execute("UPDATE alembic_version SET version_num = '0012_pre'")
