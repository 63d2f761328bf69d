"""The ids of the newest jobs, for shell completion. Without SQLAlchemy, whose import would take too long."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from ray_multicluster_scheduler.store.sqlite import database_files

_NEWEST = 'SELECT submission_id, state, "group" FROM jobs ORDER BY seq DESC LIMIT ?'
#: Completion must not wait longer than this.
_BUSY_S = 0.2


def newest(directory: Path, *, limit: int) -> list[tuple[str, str, str | None]]:
    """Return id, state and group of the newest jobs; empty if there is no store or it cannot be read."""
    path = directory / database_files.DATABASE
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_BUSY_S)) as database:
            return database.execute(_NEWEST, (limit,)).fetchall()
    except sqlite3.Error:
        return []
