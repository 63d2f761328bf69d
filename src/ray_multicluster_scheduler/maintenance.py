"""Care for a store as a whole: examine it, back it up, restore it, move it to another place."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    Connection,
    Select,
    Table,
    Text,
    and_,
    cast,
    delete,
    exists,
    func,
    not_,
    or_,
    select,
    update,
)

from ray_multicluster_scheduler.cluster_health.diagnosis import Check, Verdict
from ray_multicluster_scheduler.config.store_place import StorePlace
from ray_multicluster_scheduler.errors import ForeignStore, InvalidRequest, StoreError
from ray_multicluster_scheduler.model.job import Lease
from ray_multicluster_scheduler.model.states import FINAL, LIVE, JobState
from ray_multicluster_scheduler.store.backend import Database
from ray_multicluster_scheduler.store.leases import leader
from ray_multicluster_scheduler.store.open_place import (
    existing_backup,
    existing_database,
    new_backup,
    new_database,
    shown,
)
from ray_multicluster_scheduler.store.schema.revision import (
    BEFORE_RELEASE,
    mark_moved,
    moved_to,
    not_ours,
    read_revision,
    read_store_id,
)
from ray_multicluster_scheduler.store.schema.tables import (
    REVISION,
    attempts,
    dependencies,
    events,
    jobs,
    lease,
    logs,
    meta,
    metadata,
    package_chunks,
    packages,
    sessions,
    tags,
    upkeep,
)
from ray_multicluster_scheduler.store.transactions import count_change
from ray_multicluster_scheduler.text import storable

#: Ids that a finding names; it counts all of them.
NAMED = 3
_RESTORE = "restore a backup from before this, or ask the developers with the output of this command"
_LIVE = jobs.c.state.in_(sorted(state.value for state in LIVE))
_ENDED = jobs.c.state.in_(sorted(state.value for state in FINAL))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    """A rule that some rows break."""

    rule: str
    count: int
    #: Some of the rows.
    ids: tuple[str, ...] = ()
    advice: str


def broken_rules(tx: Connection) -> list[BrokenRule]:
    """Return all rules that do not hold. Reads whole tables."""
    found = [
        BrokenRule(rule=f"the table {table.name} has one row", count=count, advice=_RESTORE)
        for table in (meta, lease, upkeep)
        if (count := tx.scalar(select(func.count()).select_from(table)) or 0) != 1
    ]
    for rule, (broken, advice) in _rules().items():
        rows = broken.subquery()
        count = tx.scalar(select(func.count()).select_from(rows)) or 0
        if count:
            ids = tuple(str(row[0]) for row in tx.execute(broken.limit(NAMED)))
            found.append(BrokenRule(rule=rule, count=count, ids=ids, advice=advice))
    return found


def counts_by_state(tx: Connection) -> dict[str, int]:
    """Return the number of jobs in each state; no zeros."""
    rows = tx.execute(select(jobs.c.state, func.count()).group_by(jobs.c.state)).all()
    counts = {state: int(count) for state, count in rows}
    return {state.value: counts[state.value] for state in JobState if state.value in counts}


def _rules() -> Mapping[str, tuple[Select[Any], str]]:
    current = and_(attempts.c.submission_id == jobs.c.submission_id, attempts.c.number == jobs.c.attempt)
    same_place = and_(attempts.c.cluster == jobs.c.cluster, attempts.c.remote_id == jobs.c.remote_id)
    heads = jobs.alias("heads")
    is_its_head = and_(
        heads.c.submission_id == jobs.c.head, heads.c.head.is_(None), heads.c.user == jobs.c.user
    )
    needed = dependencies.join(jobs, jobs.c.submission_id == dependencies.c.needs)
    chunk_count = (
        select(func.count())
        .select_from(package_chunks)
        .where(package_chunks.c.package_id == packages.c.id)
        .scalar_subquery()
    )
    chunk_bytes = (
        select(func.coalesce(func.sum(func.length(package_chunks.c.content)), 0))
        .where(package_chunks.c.package_id == packages.c.id)
        .scalar_subquery()
    )
    return {
        **{
            f"every row of {table.name} belongs to a job": (_without_job(table), _RESTORE)
            for table in (events, attempts, logs, tags, sessions)
        },
        "every open dependency names a waiting and a needed job": (
            select(dependencies.c.submission_id).where(
                or_(
                    not_(exists().where(jobs.c.submission_id == dependencies.c.submission_id)),
                    not_(exists().where(jobs.c.submission_id == dependencies.c.needs)),
                )
            ),
            "stop the jobs that wait, and submit them again",
        ),
        "an open dependency is on a job that has not ended, or is known to have failed": (
            select(dependencies.c.submission_id)
            .select_from(needed)
            .where(_ENDED, not_(dependencies.c.failed)),
            "these jobs would wait for ever: stop them, and submit them again",
        ),
        "every job on a cluster has an attempt there that has not ended": (
            select(jobs.c.submission_id).where(
                _LIVE, not_(exists().where(current, same_place, attempts.c.outcome.is_(None)))
            ),
            "look for them with `raymc ps`, then stop them",
        ),
        "a job is listed under one of the same user that is listed itself": (
            select(jobs.c.submission_id).where(jobs.c.head.is_not(None), not_(exists().where(is_its_head))),
            _RESTORE,
        ),
        "the job that stands for a group is one of it": (
            select(jobs.c.submission_id).where(
                or_(
                    and_(jobs.c.head.is_not(None), jobs.c.head_group.is_not(None)),
                    and_(jobs.c.head.is_(None), jobs.c.group.is_distinct_from(jobs.c.head_group)),
                )
            ),
            _RESTORE,
        ),
        "every job has an event": (
            select(jobs.c.submission_id).where(
                not_(exists().where(events.c.submission_id == jobs.c.submission_id))
            ),
            _RESTORE,
        ),
        "a job has a time of its end if and only if it has ended": (
            select(jobs.c.submission_id).where(jobs.c.ended_at.is_not(None) != _ENDED),
            _RESTORE,
        ),
        "every package has all its bytes": (
            select(packages.c.name).where(
                packages.c.name.is_not(None),
                or_(packages.c.chunks != chunk_count, packages.c.size != chunk_bytes),
            ),
            "submit the jobs that need it from their directories again",
        ),
    }


def _without_job(table: Table) -> Select[Any]:
    return select(table.c.submission_id).where(
        not_(exists().where(jobs.c.submission_id == table.c.submission_id))
    )


# Copy all rows of a store into the empty tables of another one, whatever databases they are on.
#
# Rows are read as a stream and written in small batches, so that the memory does not grow with the store.

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


# `raymc db backup` and `raymc db restore`: a whole store as one file, and back.
#
# A backup is a SQLite store file with the tables of this version, whatever database the store is on. It is
# written row by row from one read transaction, which sees one moment of the store while schedulers go on.
# So there is one way for both databases, no program of the database's own is needed, and a backup of either
# can be restored to either. SQLite's own online copy would be faster, but it would be a second way for one
# of them.


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
    if revision in BEFORE_RELEASE:
        raise not_ours(tx, revision)
    place = moved_to(tx)
    if place is not None:
        raise ForeignStore(f"the job store {where} was moved to {place}; use that one")
    raise StoreError(
        f"the job store {where} has the schema {revision!r}, and this version has {REVISION!r}. Use the "
        "version that has written it; or start a scheduler of this version once, which brings an older store "
        "up to date"
    )


# `raymc db check`: what is in a store, and whether all of it fits together. Nothing is written.


_DAMAGED = "stop all programs that use it, move its files away, and restore the last backup"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """What was found."""

    place: str
    checks: tuple[Check, ...]
    store_id: str | None = None
    revision: str | None = None
    #: The process that schedules now.
    leader: str | None = None
    #: Jobs in each state.
    jobs: Mapping[str, int] = field(default_factory=dict)
    bytes: int | None = None

    @property
    def problems(self) -> int:
        """The number of checks that found a problem."""
        return sum(check.verdict is Verdict.PROBLEM for check in self.checks)


def examine(place: StorePlace) -> StoreReport:
    """Look at the store of a configuration. `StoreError` if there is none, or it cannot be opened."""
    where = shown(place)
    with existing_database(place) as database:
        try:
            with database.read() as tx:
                return _report(where, database, tx)
        except StoreError as problem:  # it could be opened, and some of it cannot be read
            unreadable = Check(name="files", verdict=Verdict.PROBLEM, says=str(problem), advice=_DAMAGED)
            return StoreReport(place=where, checks=(unreadable,))


def _report(where: str, database: Database, tx: Connection) -> StoreReport:
    revision = read_revision(tx)
    checks = [_schema_check(tx, revision), _whole(database, tx)]
    if revision == REVISION:
        checks.extend(_findings_of_rules(tx))
    return StoreReport(
        place=where,
        checks=tuple(checks),
        store_id=read_store_id(tx),
        revision=revision,
        leader=_leader(database, tx),
        jobs=counts_by_state(tx),
        bytes=database.space(tx).file_bytes,
    )


def _leader(database: Database, tx: Connection) -> str | None:
    """Return the holder of a lease that has not expired."""
    now = database.time(tx, time.time())
    lease: Lease | None = leader(tx, now=now, is_dead=lambda _: False)
    return None if lease is None else lease.holder


def _schema_check(tx: Connection, revision: str | None) -> Check:
    if revision == REVISION:
        return Check(name="schema", verdict=Verdict.OK, says=f"{revision}, that of this version")
    place = moved_to(tx)
    if place is not None:
        return Check(
            name="schema",
            verdict=Verdict.PROBLEM,
            says=f"this store was moved to {place}, and is written no more",
            advice="name that place as `store` under `scheduler:` in clusters.yaml",
        )
    if revision in BEFORE_RELEASE:
        return Check(name="schema", verdict=Verdict.PROBLEM, says=str(not_ours(tx, revision)))
    return Check(
        name="schema",
        verdict=Verdict.NOTE,
        says=f"{revision}; this version has {REVISION}, so the rows were not checked",
        advice="a scheduler of this version brings an older store up to date when it starts; for a newer one "
        "install the newer version",
    )


def _whole(database: Database, tx: Connection) -> Check:
    damage = database.damage(tx)
    if damage:
        return Check(name="files", verdict=Verdict.PROBLEM, says="; ".join(damage), advice=_DAMAGED)
    return Check(name="files", verdict=Verdict.OK, says="nothing is damaged, as far as the database can tell")


def _findings_of_rules(tx: Connection) -> Iterator[Check]:
    broken = broken_rules(tx)
    for each in broken:
        named = f" ({', '.join(each.ids)}{', …' if each.count > len(each.ids) else ''})" if each.ids else ""
        says = f"{each.rule}: not so for {each.count}{named}"
        yield Check(name="rows", verdict=Verdict.PROBLEM, says=says, advice=each.advice)
    if not broken:
        yield Check(name="rows", verdict=Verdict.OK, says="jobs, attempts, events and packages fit together")


# `raymc db move`: move a store to another place, from SQLite to PostgreSQL or back, while jobs run.
#
# One transaction holds the writer of the old store from the first row to the end, so nothing can be written
# there that the copy lacks. The new store is committed first. Then the old one is marked as moved, in that
# same transaction. From then on every write to it is refused with the name of the new place. If anything
# fails before, both are as they were.
#
# The lease is copied as it is. A scheduler on the new store leads when that of the old one has expired,
# just as if the former leader had been lost.


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
