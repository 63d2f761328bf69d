"""What is true of every store: rules between rows, for which no constraint of the database can be written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, Table, and_, exists, func, not_, or_, select

from ray_multicluster_scheduler.model.states import FINAL, LIVE, JobState
from ray_multicluster_scheduler.store.schema.tables import (
    attempts,
    dependencies,
    events,
    jobs,
    lease,
    logs,
    meta,
    package_chunks,
    packages,
    sessions,
    tags,
    upkeep,
)

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
