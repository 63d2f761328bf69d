"""What became of jobs: attempts, events and kept logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, exists, func, insert, or_, select, update

from ray_multicluster_scheduler.model.job import Attempt, Event
from ray_multicluster_scheduler.model.past_move import PastMove
from ray_multicluster_scheduler.model.states import LIVE, JobState
from ray_multicluster_scheduler.store.operations.job_reads import WRITE_EVENTS, get, require
from ray_multicluster_scheduler.store.schema.prepared import Fixed, ForIds, Prepared
from ray_multicluster_scheduler.store.schema.rows import attempt_from, event_from, event_row, note
from ray_multicluster_scheduler.store.schema.tables import attempts, events, jobs, logs

_FORGET_LOG = Prepared(
    delete(logs).where(logs.c.submission_id == bindparam("of_job"), logs.c.attempt == bindparam("of_attempt"))
)
_LAST_EVENTS = ForIds(
    lambda ids: (
        select(events.c.submission_id, func.max(events.c.id))
        .where(events.c.submission_id.in_(ids))
        .group_by(events.c.submission_id)
    )
)
_NEWEST = Fixed(select(func.max(events.c.id)))
_KEEP_LOG = Prepared(insert(logs))
_KEPT_ENDS = ForIds(
    lambda ids: (
        select(attempts.c.remote_id)
        .join(
            logs,
            and_(logs.c.submission_id == attempts.c.submission_id, logs.c.attempt == attempts.c.number),
        )
        .where(attempts.c.submission_id.in_(ids), attempts.c.outcome.is_not(None))
    )
)


#: A note has two times the same state: only moves from one to another are wanted.
_IS_MOVE = or_(events.c.old.is_(None), events.c.old != events.c.new)
_earlier = events.alias("earlier")
_LEFT_STATE_SINCE = (
    select(_earlier.c.at)
    .where(
        _earlier.c.submission_id == events.c.submission_id,
        _earlier.c.id < events.c.id,
        _earlier.c.new == events.c.old,
        or_(_earlier.c.old.is_(None), _earlier.c.old != _earlier.c.new),
    )
    .order_by(_earlier.c.id.desc())
    .limit(1)
    .scalar_subquery()
)
_MOVES = (
    select(
        events.c.id,
        events.c.submission_id,
        events.c.at,
        events.c.old,
        events.c.new,
        events.c.attempt,
        events.c.cluster,
        jobs.c.accepted_at,
        _LEFT_STATE_SINCE.label("since"),
        attempts.c.outcome,
    )
    .join(jobs, jobs.c.submission_id == events.c.submission_id)
    .outerjoin(
        attempts,
        and_(attempts.c.submission_id == events.c.submission_id, attempts.c.number == events.c.attempt),
    )
    .where(events.c.id > bindparam("after"), _IS_MOVE)
    .order_by(events.c.id)
    .limit(bindparam("most"))
)
_LIVE = frozenset(state.value for state in LIVE)


def moves_since(tx: Connection, *, after: int, limit: int) -> tuple[int, tuple[PastMove, ...]]:
    """Return moves after an event, in order, and after which event to go on."""
    rows = tx.execute(_MOVES, {"after": after, "most": limit}).all()
    newest = rows[-1].id if len(rows) == limit else last_event(tx)
    return max(after, newest), tuple(map(_past_move, rows))


def _past_move(row: Any) -> PastMove:
    ends_attempt = row.old in _LIVE and row.new not in _LIVE
    return PastMove(
        submission_id=row.submission_id,
        at=row.at,
        old=None if row.old is None else JobState(row.old),
        new=JobState(row.new),
        attempt=row.attempt,
        cluster=row.cluster,
        accepted_at=row.accepted_at,
        since=row.since,
        outcome=row.outcome if ends_attempt else None,
    )


def list_attempts(tx: Connection, submission_id: str, *, last: int | None = None) -> tuple[Attempt, ...]:
    """Return the attempts of a job, oldest first: all of them, or so many of the last."""
    of_job = select(attempts).where(attempts.c.submission_id == submission_id)
    newest = of_job.order_by(attempts.c.number.desc()).limit(last)
    return tuple(attempt_from(row) for row in tx.execute(newest).mappings())[::-1]


def live_remote_ids(tx: Connection, cluster: str) -> frozenset[str]:
    """Return Ray submission ids of the attempts that live on a cluster now."""
    living = select(attempts.c.remote_id).where(attempts.c.cluster == cluster, attempts.c.outcome.is_(None))
    return frozenset(tx.scalars(living))


def mark_attempt(
    tx: Connection, submission_id: str, number: int, *, outcome: str, reason: str, now: float
) -> None:
    """Record what became of a former attempt, with an event; the job stays."""
    job = get(tx, submission_id)
    former = next((a for a in list_attempts(tx, submission_id) if a.number == number), None)
    if former is None or (number == job.attempt and job.state in LIVE):
        raise ValueError(
            f"{submission_id!r} has no former attempt {number}; the current one is {job.attempt}"
        )
    tx.execute(
        update(attempts)
        .where(attempts.c.submission_id == submission_id, attempts.c.number == number)
        .values(outcome=outcome, reason=reason)
    )
    event = replace(note(job, now=now, reason=reason), attempt=number, cluster=former.cluster)
    WRITE_EVENTS.run(tx, [event_row(event)])


def list_events(
    tx: Connection, submission_id: str | None, *, after: int, limit: int, user: str | None = None
) -> tuple[Event, ...]:
    """Return events in order, of one job, of one user's jobs, or of all."""
    statement = select(events).where(events.c.id > after).order_by(events.c.id).limit(limit)
    if submission_id is not None:
        statement = statement.where(events.c.submission_id == submission_id)
    if user is not None:
        mine = exists().where(jobs.c.submission_id == events.c.submission_id, jobs.c.user == user)
        statement = statement.where(mine)
    return tuple(event_from(row) for row in tx.execute(statement).mappings())


def changed_since(tx: Connection, submission_ids: Sequence[str], *, after: int) -> tuple[int, frozenset[str]]:
    """Return the newest event, and which of these jobs those after `after` are about."""
    newest = last_event(tx)
    if newest <= after:
        return after, frozenset()
    if newest - after <= len(submission_ids):  # fewer events than jobs
        found = tx.scalars(select(events.c.submission_id).where(events.c.id > after))
        return newest, frozenset(found) & frozenset(submission_ids)
    last = _LAST_EVENTS.rows(tx, submission_ids)
    return newest, frozenset(submission_id for submission_id, event in last if event > after)


def last_event(tx: Connection) -> int:
    """Return the id of the newest event; 0: there is none."""
    return _NEWEST.run(tx).scalar() or 0


def save_logs(tx: Connection, kept: Sequence[tuple[str, int, str]]) -> None:
    """Keep the logs of attempts, replacing what was kept."""
    require(tx, sorted({submission_id for submission_id, _, _ in kept}))
    _FORGET_LOG.run(tx, [{"of_job": job, "of_attempt": number} for job, number, _ in kept])
    _KEEP_LOG.run(tx, [{"submission_id": job, "attempt": number, "text": text} for job, number, text in kept])


def kept_ends(tx: Connection, remote_ids: Sequence[str]) -> frozenset[str]:
    """Return those of these attempts that have ended and whose log is kept."""
    job_ids = {remote_id.rpartition("--r")[0] or remote_id for remote_id in remote_ids} | set(remote_ids)
    return frozenset(remote_id for (remote_id,) in _KEPT_ENDS.rows(tx, sorted(job_ids))) & set(remote_ids)


def load_log(tx: Connection, submission_id: str, attempt: int | None) -> str | None:
    """Return the kept log of an attempt (of the last one by default), or None."""
    last = select(jobs.c.attempt).where(jobs.c.submission_id == submission_id).scalar_subquery()
    number = last if attempt is None else attempt
    return tx.scalar(
        select(logs.c.text).where(logs.c.submission_id == submission_id, logs.c.attempt == number)
    )
