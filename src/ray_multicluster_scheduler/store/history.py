"""What has happened to jobs: their events, their attempts on clusters, and the kept logs of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Text,
    and_,
    bindparam,
    cast,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from ray_multicluster_scheduler.model.job import Attempt, AttemptSpan, JobEvent, PastMove
from ray_multicluster_scheduler.model.result import LeftResult
from ray_multicluster_scheduler.model.states import LIVE, JobState
from ray_multicluster_scheduler.store.job_rows import WRITE_EVENTS, get_job, require_jobs
from ray_multicluster_scheduler.store.schema.prepared import Fixed, ForIds, Prepared
from ray_multicluster_scheduler.store.schema.rows import attempt_from, claim_from, event_from, event_row, note
from ray_multicluster_scheduler.store.schema.tables import attempts, events, jobs, logs, results
from ray_multicluster_scheduler.store.transactions import Transactions
from ray_multicluster_scheduler.text import storable

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
_LIVE_STATES = frozenset(state.value for state in LIVE)
_FORGET_LOG = Prepared(
    delete(logs).where(logs.c.submission_id == bindparam("of_job"), logs.c.attempt == bindparam("of_attempt"))
)
_KEEP_LOG = Prepared(insert(logs))
_FORGET_RESULT = Prepared(delete(results).where(results.c.submission_id == bindparam("of_job")))
_KEEP_RESULT = Prepared(insert(results))
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
#: In the order of the columns; the claim is in the spec.
_SPAN_FIELDS = tuple(field.name for field in fields(AttemptSpan))
_SPANS = select(
    attempts.c.submission_id,
    jobs.c.name,
    jobs.c.user,
    jobs.c.group,
    attempts.c.cluster,
    attempts.c.number,
    attempts.c.placed_at,
    attempts.c.started_at,
    attempts.c.ended_at,
    attempts.c.end_unreported,
    attempts.c.outcome,
    jobs.c.state,
    cast(jobs.c.spec, Text),
).join(jobs, jobs.c.submission_id == attempts.c.submission_id)


class History:
    """Events, attempts, logs and results, which are written in the same transaction as moves of jobs."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def events(
        self, submission_id: str | None = None, *, after: int = 0, limit: int = 1000, user: str | None = None
    ) -> tuple[JobEvent, ...]:
        """Return events in order, of one job, of one user's jobs, or of all."""
        statement = select(events).where(events.c.id > after).order_by(events.c.id).limit(limit)
        if submission_id is not None:
            statement = statement.where(events.c.submission_id == submission_id)
        if user is not None:
            is_of_user = exists().where(jobs.c.submission_id == events.c.submission_id, jobs.c.user == user)
            statement = statement.where(is_of_user)
        with self._transactions.read() as tx:
            return tuple(event_from(row) for row in tx.execute(statement).mappings())

    def changed_since(self, submission_ids: Sequence[str], *, after: int) -> tuple[int, frozenset[str]]:
        """Return the id of the newest event, and those of these jobs that have events after `after`.

        The cost grows with the number of ids or of events since then, whichever is less.
        """
        with self._transactions.read() as tx:
            newest = _last_event(tx)
            if newest <= after:
                return after, frozenset()
            if newest - after <= len(submission_ids):  # fewer events than jobs
                changed_ids = tx.scalars(select(events.c.submission_id).where(events.c.id > after))
                return newest, frozenset(changed_ids) & frozenset(submission_ids)
            last = _LAST_EVENTS.rows(tx, submission_ids)
        return newest, frozenset(submission_id for submission_id, event in last if event > after)

    def moves_since(self, after: int, *, limit: int) -> tuple[int, tuple[PastMove, ...]]:
        """Return changes of state after an event, in order, and the event after which to continue.

        Notes are skipped. Fewer than `limit` changes mean that there are no more now.
        """
        with self._transactions.read() as tx:
            rows = tx.execute(_MOVES, {"after": after, "most": limit}).all()
            newest = rows[-1].id if len(rows) == limit else _last_event(tx)
        return max(after, newest), tuple(map(_past_move, rows))

    def last_event(self) -> int:
        """Return the `id` of the newest event, or 0. Every change of a job writes an event."""
        with self._transactions.read() as tx:
            return _last_event(tx)

    def attempts(self, submission_id: str, *, last: int | None = None) -> tuple[Attempt, ...]:
        """Return the attempts of a job, oldest first: all of them, or only the `last` ones."""
        with self._transactions.read() as tx:
            return _attempts(tx, submission_id, last=last)

    def live_remote_ids(self, cluster: str) -> frozenset[str]:
        """Return the remote ids of the live attempts on a cluster."""
        living = select(attempts.c.remote_id).where(
            attempts.c.cluster == cluster, attempts.c.outcome.is_(None)
        )
        with self._transactions.read() as tx:
            return frozenset(tx.scalars(living))

    def mark_attempt(
        self, submission_id: str, number: int, *, outcome: str, reason: str, epoch: int, now: float
    ) -> None:
        """Record the outcome of a former attempt (such as SUPERSEDED), with an event; the job stays."""
        with self._transactions.write(epoch=epoch) as tx:
            job = get_job(tx, submission_id)
            former = next((a for a in _attempts(tx, submission_id) if a.number == number), None)
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

    def spans(
        self, *, since: float, until: float, cluster: str | None = None, user: str | None = None, limit: int
    ) -> tuple[AttemptSpan, ...]:
        """Return the newest `limit` attempts that were on their cluster between `since` and `until`.

        They come in the order in which they were placed: of all clusters and users, or of one.

        Those that were placed in this time are read first, newest first, from an index that ends with the
        limit. Only if there is room for more, those are looked for that were placed before: the live ones,
        and those that have ended since, by an index on their ends. So the cost grows with the limit, with
        the attempts that live and with those that have ended after `since`, but not with the history before.
        """
        filters = []
        if cluster is not None:
            filters.append(_by_row(attempts.c.cluster) == cluster)
        if user is not None:
            filters.append(_by_row(jobs.c.user) == user)
        in_time = attempts.c.placed_at.between(since, until)
        with self._transactions.read() as tx:
            found = _read_spans(tx, attempts.c.placed_at, [in_time, *filters], limit)
            left = limit - len(found)
            if left > 0:
                placed_at = _by_row(attempts.c.placed_at)
                live = (attempts.c.outcome.is_(None),)
                ended = (attempts.c.ended_at >= since, attempts.c.outcome.is_not(None))
                earlier = [
                    span
                    for lasts in (live, ended)
                    for span in _read_spans(tx, placed_at, [*lasts, placed_at < since, *filters], left)
                ]
                earlier.sort(key=lambda span: (span.placed_at, span.submission_id), reverse=True)
                found += earlier[:left]
        return tuple(found[::-1])

    def load_log(self, submission_id: str, attempt: int | None = None) -> str | None:
        """Return the kept log of an attempt (of the last one by default), or None."""
        last = select(jobs.c.attempt).where(jobs.c.submission_id == submission_id).scalar_subquery()
        number = last if attempt is None else attempt
        of_attempt = (logs.c.submission_id == submission_id, logs.c.attempt == number)
        with self._transactions.read() as tx:
            return tx.scalar(select(logs.c.text).where(*of_attempt))

    def load_result(self, submission_id: str) -> tuple[int, LeftResult] | None:
        """Return what the last attempt of a job left as its result, with the attempt's number; or None."""
        last = select(jobs.c.attempt).where(jobs.c.submission_id == submission_id).scalar_subquery()
        of_last = (results.c.submission_id == submission_id, results.c.attempt == last)
        with self._transactions.read() as tx:
            row = tx.execute(select(results).where(*of_last)).first()
        return None if row is None else (row.attempt, LeftResult(content=row.content, problem=row.problem))

    def kept_ends(self, remote_ids: Sequence[str]) -> frozenset[str]:
        """Return those of these attempts, by remote id, whose end and log are stored here."""
        job_ids = {remote_id.rpartition("--r")[0] or remote_id for remote_id in remote_ids} | set(remote_ids)
        with self._transactions.read() as tx:
            return frozenset(row[0] for row in _KEPT_ENDS.rows(tx, sorted(job_ids))) & set(remote_ids)


def save_logs(tx: Connection, texts: Sequence[tuple[str, int, str]]) -> None:
    """Keep the logs of attempts. A log that was kept before is replaced."""
    require_jobs(tx, sorted({submission_id for submission_id, _, _ in texts}))
    _FORGET_LOG.run(tx, [{"of_job": job, "of_attempt": number} for job, number, _ in texts])
    _KEEP_LOG.run(
        tx, [{"submission_id": job, "attempt": number, "text": storable(text)} for job, number, text in texts]
    )


def save_results(tx: Connection, found: Sequence[tuple[str, int, LeftResult]]) -> None:
    """Keep the results of jobs. One that was kept before, perhaps of an earlier attempt, is replaced."""
    require_jobs(tx, sorted({submission_id for submission_id, _, _ in found}))
    _FORGET_RESULT.run(tx, [{"of_job": job} for job, _, _ in found])
    rows = [
        {
            "submission_id": job,
            "attempt": number,
            "content": left.content,
            "problem": None if left.problem is None else storable(left.problem),
        }
        for job, number, left in found
    ]
    _KEEP_RESULT.run(tx, rows)


def _last_event(tx: Connection) -> int:
    return _NEWEST.run(tx).scalar() or 0


def _past_move(row: Any) -> PastMove:
    ends_attempt = row.old in _LIVE_STATES and row.new not in _LIVE_STATES
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


def _attempts(tx: Connection, submission_id: str, *, last: int | None = None) -> tuple[Attempt, ...]:
    of_job = select(attempts).where(attempts.c.submission_id == submission_id)
    newest = of_job.order_by(attempts.c.number.desc()).limit(last)
    return tuple(attempt_from(row) for row in tx.execute(newest).mappings())[::-1]


def _by_row(column: Column[Any]) -> ColumnElement[Any]:
    """Return a column as an expression, for which no index is used.

    SQLite does not know how many rows a condition leaves. By an index on the cluster or the user it would go
    through the whole history.
    """
    return func.coalesce(column, column)


def _read_spans(
    tx: Connection, newest: ColumnElement[Any], filters: Sequence[ColumnElement[bool]], limit: int
) -> list[AttemptSpan]:
    order = newest.desc(), attempts.c.submission_id.desc()
    return [_span(row) for row in tx.execute(_SPANS.where(*filters).order_by(*order).limit(limit)).all()]


def _span(row: Sequence[Any]) -> AttemptSpan:
    values = dict(zip(_SPAN_FIELDS, row, strict=True))
    values["state"] = JobState(values["state"])
    values["claim"] = dict(claim_from(values["claim"]))
    return AttemptSpan(**values)
