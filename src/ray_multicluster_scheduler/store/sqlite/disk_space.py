"""What a SQLite store takes on the disk, and giving back what removed rows have left."""

from __future__ import annotations

from sqlalchemy import Connection

from ray_multicluster_scheduler.model.retention import Space

#: Free pages up to this share of all are left for what comes next: to give them back would only cost time.
_SPARE_SHARE = 0.1
_INCREMENTAL = 2


def used_bytes(tx: Connection) -> int:
    """Return how much holds something."""
    return (_pragma(tx, "page_count") - _pragma(tx, "freelist_count")) * _pragma(tx, "page_size")


def space(tx: Connection) -> Space:
    """Return what the database takes, and how much of that holds something."""
    return Space(file_bytes=_pragma(tx, "page_count") * _pragma(tx, "page_size"), used_bytes=used_bytes(tx))


def can_shrink(tx: Connection) -> bool:
    """Tell whether pages can be given back one by one: an older version's store has to be rewritten."""
    return _pragma(tx, "auto_vacuum") == _INCREMENTAL


def shrink(tx: Connection, *, most_bytes: int) -> bool:
    """Give free pages back to the file system, so many at once; tell whether there are more to give."""
    pages, free = _pragma(tx, "page_count"), _pragma(tx, "freelist_count")
    if not can_shrink(tx) or free <= pages * _SPARE_SHARE:
        return False
    step = max(1, most_bytes // _pragma(tx, "page_size"))
    cursor = tx.connection.cursor()
    for _ in range(min(free, step)):  # the driver takes one step of this statement only, which is one page
        cursor.execute("PRAGMA incremental_vacuum(1)")
    cursor.close()
    return free > step


def _pragma(tx: Connection, name: str) -> int:
    value: int = tx.exec_driver_sql(f"PRAGMA {name}").scalar_one()
    return value
