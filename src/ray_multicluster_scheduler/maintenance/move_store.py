"""`raymc db move`: move a store to another place, from SQLite to PostgreSQL or back, while jobs run.

One transaction holds the writer of the old store from the first row to the end, so nothing can be written
there that the copy lacks. The new store is committed first. Then the old one is marked as moved, in that same
transaction. From then on every write to it is refused with the name of the new place. If anything fails
before, both are as they were.

The lease is copied as it is. A scheduler on the new store leads when that of the old one has expired, just as
if the former leader had been lost.
"""

from __future__ import annotations

from ray_multicluster_scheduler.config.store_place import StorePlace
from ray_multicluster_scheduler.errors import InvalidRequest, StoreError
from ray_multicluster_scheduler.maintenance.backup_file import Copied, copy_all, require_this_version
from ray_multicluster_scheduler.store.open_place import existing_database, new_database, shown
from ray_multicluster_scheduler.store.operations.change_counter import count_change
from ray_multicluster_scheduler.store.operations.store_copy import Progress
from ray_multicluster_scheduler.store.schema.revision import mark_moved


def move(source_place: StorePlace, target_place: StorePlace, *, progress: Progress) -> Copied:
    """Copy everything to a place where no store is, and mark the old store as moved there."""
    old, new = shown(source_place), shown(target_place)
    if old == new:
        raise InvalidRequest(f"the job store is in {old} already; name another place with --to")
    copied: Copied | None = None
    try:
        with existing_database(source_place) as source, source.hold() as read:
            require_this_version(read, old)
            with new_database(target_place) as (target, write):
                finished = copy_all(source, read, target, write, place=new, progress=progress)
            copied = finished
            mark_moved(read, new)
            count_change(read)  # wakes those who wait: they find that the store was moved
    except StoreError as problem:
        if copied is None:
            raise
        raise StoreError(
            f"all is in {new} now, but {old} could not be marked as moved ({problem}). Before you start "
            f"anything on {new}, stop all programs that use {old}, and move that away"
        ) from problem
    return copied
