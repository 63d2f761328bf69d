"""`raymc db backup` and `raymc db restore`: a whole store as one file, and back.

A backup is a SQLite store file with the tables of this version, whatever database the store is on. It is
written row by row from one read transaction, which sees one moment of the store while schedulers go on. So
there is one way for both databases, no program of the database's own is needed, and a backup of either can be
restored to either. SQLite's own online copy would be faster, but it would be a second way for one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from ray_multicluster_scheduler.config.store_place import StorePlace
from ray_multicluster_scheduler.errors import ForeignStore, StoreError
from ray_multicluster_scheduler.store.backend import Database
from ray_multicluster_scheduler.store.open_place import (
    existing_backup,
    existing_database,
    new_backup,
    new_database,
    shown,
)
from ray_multicluster_scheduler.store.operations.invariants import BrokenRule, broken_rules, counts_by_state
from ray_multicluster_scheduler.store.operations.store_copy import Progress, copy_store, end_lease
from ray_multicluster_scheduler.store.operations.store_identity import read_store_id
from ray_multicluster_scheduler.store.schema.revision import moved_to, read_revision
from ray_multicluster_scheduler.store.schema.tables import REVISION


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What was copied."""

    place: str
    store_id: str
    rows: int
    #: Jobs in each state.
    jobs: dict[str, int]
    #: Rules that the copied rows break, as they did before.
    broken: tuple[BrokenRule, ...] = ()


def back_up(place: StorePlace, file: Path, *, replace: bool, progress: Progress) -> Copied:
    """Write a store into a new file, which only its user can read. The store stays in use meanwhile."""
    with existing_database(place) as source, source.read() as read:
        require_this_version(read, shown(place))
        with new_backup(file, replace=replace) as (target, write):
            return copy_all(source, read, target, write, place=str(file), progress=progress)


def restore(file: Path, place: StorePlace, *, progress: Progress) -> Copied:
    """Make a store of a backup, where no store is. The file is checked first; nobody holds the lease then."""
    with existing_backup(file) as source, source.read() as read:
        require_this_version(read, str(file))
        damage = source.damage(read)
        if damage:
            raise StoreError(
                f"{file} is damaged; nothing was restored. Use another backup: {'; '.join(damage)}"
            )
        with new_database(place) as (target, write):
            copied = copy_all(source, read, target, write, place=shown(place), progress=progress)
            end_lease(write)
            return copied


def copy_all(
    source: Database, read: Connection, target: Database, write: Connection, *, place: str, progress: Progress
) -> Copied:
    """Copy a store into the empty tables of a new one; tell what was copied."""
    rows = copy_store(source, read, target, write, progress=progress)
    return Copied(
        place=place,
        store_id=read_store_id(write),
        rows=rows,
        jobs=counts_by_state(write),
        broken=tuple(broken_rules(write)),
    )


def require_this_version(tx: Connection, where: str) -> None:
    """Refuse a store with another schema: its rows do not fit into the tables of this version."""
    revision = read_revision(tx)
    if revision == REVISION:
        return
    place = moved_to(tx)
    if place is not None:
        raise ForeignStore(f"the job store {where} was moved to {place}; use that one")
    raise StoreError(
        f"the job store {where} has the schema {revision!r}, and this version has {REVISION!r}. Use the "
        "version that has written it; or start a scheduler of this version once, which brings an older store "
        "up to date"
    )
