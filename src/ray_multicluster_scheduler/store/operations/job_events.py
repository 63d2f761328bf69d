"""The events of jobs: what happened, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    exists,
    func,
    insert,
    or_,
    select,
)

from ray_multicluster_scheduler.model.job import Event
from ray_multicluster_scheduler.model.past_move import PastMove
from ray_multicluster_scheduler.model.states import LIVE, JobState
from ray_multicluster_scheduler.store.schema.prepared import Fixed, ForIds, Prepared
from ray_multicluster_scheduler.store.schema.rows import (
    event_from,
)
from ray_multicluster_scheduler.store.schema.tables import attempts, events, jobs

WRITE_EVENTS = Prepared(insert(events))
_LAST_EVENTS = ForIds(
    lambda ids: (
        select(events.c.submission_id, func.max(events.c.id))
        .where(events.c.submission_id.in_(ids))
        .group_by(events.c.submission_id)
    )
)
_NEWEST = Fixed(select(func.max(events.c.id)))
#: A note has the same state twice; a move goes from one state to another.
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
        attempts.c.started_at,
        attempts.c.ended_at,
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
    """Return moves after an event, in order, and the event to continue after."""
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
        started_at=row.started_at,
        ended_at=row.ended_at if ends_attempt else None,
    )


def list_events(
    tx: Connection, submission_id: str | None, *, after: int, limit: int, user: str | None = None
) -> tuple[Event, ...]:
    """Return events in order, of one job, of one user's jobs, or of all."""
    statement = select(events).where(events.c.id > after).order_by(events.c.id).limit(limit)
    if submission_id is not None:
        statement = statement.where(events.c.submission_id == submission_id)
    if user is not None:
        is_of_user = exists().where(jobs.c.submission_id == events.c.submission_id, jobs.c.user == user)
        statement = statement.where(is_of_user)
    return tuple(event_from(row) for row in tx.execute(statement).mappings())


def changed_since(tx: Connection, submission_ids: Sequence[str], *, after: int) -> tuple[int, frozenset[str]]:
    """Return the id of the newest event, and which of these jobs have events after `after`."""
    newest = last_event(tx)
    if newest <= after:
        return after, frozenset()
    if newest - after <= len(submission_ids):  # fewer events than jobs
        changed_ids = tx.scalars(select(events.c.submission_id).where(events.c.id > after))
        return newest, frozenset(changed_ids) & frozenset(submission_ids)
    last = _LAST_EVENTS.rows(tx, submission_ids)
    return newest, frozenset(submission_id for submission_id, event in last if event > after)


def last_event(tx: Connection) -> int:
    """Return the id of the newest event; 0: there is none."""
    return _NEWEST.run(tx).scalar() or 0
