"""The size of a SQLite store on disk, and returning the free space that removed rows have left."""

from __future__ import annotations

from sqlalchemy import Connection

from ray_multicluster_scheduler.model.retention import Space

#: Free pages up to this share are kept for new rows: returning them would only cost time.
_SPARE_SHARE = 0.1
_INCREMENTAL = 2


def used_bytes(tx: Connection) -> int:
    """Return how many bytes of the database hold data."""
    return (_pragma(tx, "page_count") - _pragma(tx, "freelist_count")) * _pragma(tx, "page_size")


def space(tx: Connection) -> Space:
    """Return the size of the database, and how much of it holds data."""
    return Space(file_bytes=_pragma(tx, "page_count") * _pragma(tx, "page_size"), used_bytes=used_bytes(tx))


def can_shrink(tx: Connection) -> bool:
    """Tell whether single pages can be returned. The store of an older version has to be rewritten."""
    return _pragma(tx, "auto_vacuum") == _INCREMENTAL


def shrink(tx: Connection, *, most_bytes: int) -> bool:
    """Return free pages to the file system, at most `most_bytes`; tell whether there are more to return."""
    pages, free = _pragma(tx, "page_count"), _pragma(tx, "freelist_count")
    if not can_shrink(tx) or free <= pages * _SPARE_SHARE:
        return False
    step = max(1, most_bytes // _pragma(tx, "page_size"))
    cursor = tx.connection.cursor()
    for _ in range(min(free, step)):  # the driver makes only one step of this statement, which frees one page
        cursor.execute("PRAGMA incremental_vacuum(1)")
    cursor.close()
    return free > step


def _pragma(tx: Connection, name: str) -> int:
    value: int = tx.exec_driver_sql(f"PRAGMA {name}").scalar_one()
    return value
