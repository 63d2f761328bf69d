"""The attempts that were on a cluster at some moment of a span of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Text, cast, func, select

from ray_multicluster_scheduler.model.attempt_span import AttemptSpan
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store.schema.rows import claim_from
from ray_multicluster_scheduler.store.schema.tables import attempts, jobs

#: In the order of the columns; the claim is in the spec.
_FIELDS = tuple(field.name for field in fields(AttemptSpan))
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


def _by_row(column: Column[Any]) -> ColumnElement[Any]:
    """Return a column as an expression, for which no index is used.

    SQLite does not know how many rows a condition leaves. By an index on the cluster or the user it would go
    through the whole history.
    """
    return func.coalesce(column, column)


def spans(
    tx: Connection, *, since: float, until: float, cluster: str | None, user: str | None, limit: int
) -> tuple[AttemptSpan, ...]:
    """Return the newest `limit` attempts that overlap the time from `since` to `until`, oldest first.

    Those that were placed in this time come first, newest first, from an index that ends with the limit. Only
    if there is room for more, those are looked for that were placed before: the live ones, and those that
    have ended since, by an index on their ends. So the cost grows with the limit, with the attempts that live
    and with those that have ended after `since`, but not with the history before.
    """
    filters = []
    if cluster is not None:
        filters.append(_by_row(attempts.c.cluster) == cluster)
    if user is not None:
        filters.append(_by_row(jobs.c.user) == user)
    in_time = attempts.c.placed_at.between(since, until)
    found = _read(tx, attempts.c.placed_at, [in_time, *filters], limit)
    left = limit - len(found)
    if left > 0:
        placed_at = _by_row(attempts.c.placed_at)
        live = (attempts.c.outcome.is_(None),)
        ended = (attempts.c.ended_at >= since, attempts.c.outcome.is_not(None))
        earlier = [
            span
            for lasts in (live, ended)
            for span in _read(tx, placed_at, [*lasts, placed_at < since, *filters], left)
        ]
        found += sorted(earlier, key=lambda span: (span.placed_at, span.submission_id), reverse=True)[:left]
    return tuple(found[::-1])


def _read(
    tx: Connection, newest: ColumnElement[Any], filters: Sequence[ColumnElement[bool]], limit: int
) -> list[AttemptSpan]:
    order = newest.desc(), attempts.c.submission_id.desc()
    return [_span(row) for row in tx.execute(_SPANS.where(*filters).order_by(*order).limit(limit)).all()]


def _span(row: Sequence[Any]) -> AttemptSpan:
    values = dict(zip(_FIELDS, row, strict=True))
    values["state"] = JobState(values["state"])
    values["claim"] = dict(claim_from(values["claim"]))
    return AttemptSpan(**values)
