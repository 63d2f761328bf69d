"""Remove history in small steps: secrets of ended jobs first, then logs, then whole jobs, oldest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Column, Connection, Table, delete, exists, func, select, update

from ray_multicluster_scheduler.errors import DependencyProblem, InvalidRequest, JobNotFound
from ray_multicluster_scheduler.model.retention import Keep, Pruned
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.store.operations.audit_trail import prune_audit
from ray_multicluster_scheduler.store.operations.forget_secrets import forget_secrets
from ray_multicluster_scheduler.store.operations.job_heads import has_more_members_than, replace_heads
from ray_multicluster_scheduler.store.schema.prepared import ForIds
from ray_multicluster_scheduler.store.schema.tables import (
    attempts,
    dependencies,
    events,
    jobs,
    logs,
    sessions,
    tags,
    upkeep,
)


def _delete_from(table: Table) -> ForIds:
    return ForIds(lambda ids: delete(table).where(table.c.submission_id.in_(ids)))


#: Removing this many audit entries takes as long as removing one job with all its rows.
_AUDIT_PER_JOB = 10
#: A job that more than these are listed under is pruned after them: another one would take its place for all
#: of them, again and again, and a step is to be short.
_MOST_MEMBERS = 100
_DELETE_LOGS = _delete_from(logs)
#: In this order: rows that refer to a job are deleted before the job.
_DELETES = tuple(_delete_from(table) for table in (events, tags, attempts, sessions, dependencies, jobs))
_IS_FINAL = jobs.c.state.in_(sorted(state.value for state in FINAL))
_IS_NEEDED = exists().where(dependencies.c.needs == jobs.c.submission_id)
_STANDS_FOR_FEW = has_more_members_than(_MOST_MEMBERS).is_(None)
_ENDS = ForIds(
    lambda ids: select(jobs.c.submission_id, jobs.c.state, _IS_NEEDED.label("needed")).where(
        jobs.c.submission_id.in_(ids)
    )
)


def prune(
    tx: Connection, keep: Keep, *, now: float, limit: int, used_bytes: Callable[[Connection], int]
) -> Pruned:
    """Take one step: remove one kind of data of about `limit` jobs.

    `used_bytes` returns how many bytes of the database hold data.
    """
    steps: tuple[Callable[[], Pruned], ...] = (
        lambda: _prune_secrets(tx, until=now - keep.secrets_s, limit=limit),
        lambda: _prune_logs(tx, until=now - keep.logs_s, limit=limit),
        lambda: _prune_audit(tx, keep, now=now, limit=limit),
        lambda: _prune_jobs(tx, until=now - keep.jobs_s, limit=limit),
        lambda: _prune_jobs(tx, until=now, limit=min(limit, _beyond(tx, keep.jobs))),
        lambda: _prune_to_size(tx, now=now, limit=limit) if used_bytes(tx) > keep.size_bytes else Pruned(),
    )
    for step in steps:
        if (pruned := step()).more:
            return pruned
    return Pruned()


def delete_jobs(tx: Connection, submission_ids: Sequence[str]) -> None:
    """Remove ended jobs with all their rows: all of these jobs or none."""
    ids = list(dict.fromkeys(submission_ids))
    ends = {submission_id: (state, needed) for submission_id, state, needed in _ENDS.rows(tx, ids)}
    for submission_id in ids:
        if submission_id not in ends:
            raise JobNotFound(submission_id)
        state, needed = ends[submission_id]
        if JobState(state) not in FINAL:
            raise InvalidRequest(
                f"job {submission_id!r} is {state} and can be deleted when it has ended; stop it first"
            )
        if needed:
            raise DependencyProblem(
                f"job {submission_id!r} cannot be deleted while other jobs wait for it; stop those first"
            )
    _remove(tx, ids)


def prunable(tx: Connection, keep: Keep, *, now: float) -> Pruned:
    """Count what the rules about age and number would remove."""
    may_go = (_IS_FINAL, ~_IS_NEEDED)
    old = select(func.count()).select_from(jobs).where(jobs.c.ended_at <= now - keep.jobs_s, *may_go)
    count = max(tx.scalar(old) or 0, _beyond(tx, keep.jobs))
    ends = select(jobs.c.ended_at).where(jobs.c.ended_at <= now, *may_go).order_by(jobs.c.ended_at)
    last = tx.scalar(ends.limit(1).offset(count - 1)) if count else None
    ended = select(jobs.c.submission_id).where(jobs.c.ended_at <= max(now - keep.logs_s, last or 0.0))
    texts = tx.scalar(select(func.count()).select_from(logs).where(logs.c.submission_id.in_(ended))) or 0
    return Pruned(jobs=count, logs=texts, more=count + texts > 0)


def _prune_secrets(tx: Connection, *, until: float, limit: int) -> Pruned:
    def act(ids: Sequence[str]) -> Pruned:
        return Pruned(secrets=forget_secrets(tx, ids), more=True)

    return _by_end(tx, upkeep.c.secrets_until, until, limit, act)


def _prune_logs(tx: Connection, *, until: float, limit: int) -> Pruned:
    def act(ids: Sequence[str]) -> Pruned:
        return Pruned(logs=_DELETE_LOGS.run(tx, ids), more=True)

    return _by_end(tx, upkeep.c.logs_until, until, limit, act)


def _prune_audit(tx: Connection, keep: Keep, *, now: float, limit: int) -> Pruned:
    removed = prune_audit(tx, until=now - keep.audit_s, most=keep.audit, limit=limit * _AUDIT_PER_JOB)
    return Pruned(more=removed > 0)


def _by_end(
    tx: Connection,
    done_until: Column[Any],
    until: float,
    limit: int,
    act: Callable[[Sequence[str]], Pruned],
) -> Pruned:
    """Call `act` with the next jobs in the order of their ends. Jobs with the same end stay together."""
    after = tx.scalar(select(done_until)) or 0.0
    ends = select(jobs.c.ended_at).where(jobs.c.ended_at > after, jobs.c.ended_at <= until)
    last = tx.scalar(ends.order_by(jobs.c.ended_at).limit(1).offset(limit - 1)) or until
    ids = tx.scalars(
        select(jobs.c.submission_id).where(jobs.c.ended_at > after, jobs.c.ended_at <= last)
    ).all()
    if not ids:
        return Pruned()
    tx.execute(update(upkeep).values({done_until: last}))
    return act(ids)


def _prune_jobs(tx: Connection, *, until: float, limit: int) -> Pruned:
    oldest = (
        select(jobs.c.submission_id)
        .where(jobs.c.ended_at <= until, _IS_FINAL, ~_IS_NEEDED, _STANDS_FOR_FEW)
        .order_by(jobs.c.ended_at)
        .limit(limit)
    )
    ids = tx.scalars(oldest).all() if limit > 0 else ()
    return Pruned(jobs=len(ids), logs=_remove(tx, ids), more=bool(ids))


def _remove(tx: Connection, ids: Sequence[str]) -> int:
    """Remove jobs with all their rows; return how many logs were removed."""
    texts = _DELETE_LOGS.run(tx, ids)
    for statement in _DELETES:
        statement.run(tx, ids)
    replace_heads(tx, ids)
    return texts


def _prune_to_size(tx: Connection, *, now: float, limit: int) -> Pruned:
    logs_first = _prune_logs(tx, until=now, limit=limit)
    return logs_first if logs_first.more else _prune_jobs(tx, until=now, limit=limit)


def _beyond(tx: Connection, most: int) -> int:
    """Return by how many the ended jobs exceed `most`."""
    oldest, newest = tx.execute(select(func.min(jobs.c.seq), func.max(jobs.c.seq))).one()
    if oldest is None or newest - oldest < most:  # there cannot be that many: no need to count
        return 0
    ended = tx.scalar(select(func.count()).select_from(jobs).where(jobs.c.ended_at > 0)) or 0
    return max(0, ended - most)
