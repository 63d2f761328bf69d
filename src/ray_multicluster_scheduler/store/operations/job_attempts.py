"""The attempts of jobs on clusters."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import (
    Connection,
    select,
    update,
)

from ray_multicluster_scheduler.model.job import Attempt
from ray_multicluster_scheduler.model.states import LIVE
from ray_multicluster_scheduler.store.operations.job_events import WRITE_EVENTS
from ray_multicluster_scheduler.store.operations.job_reads import (
    get,
)
from ray_multicluster_scheduler.store.schema.rows import (
    attempt_from,
    event_row,
    note,
)
from ray_multicluster_scheduler.store.schema.tables import attempts


def list_attempts(tx: Connection, submission_id: str, *, last: int | None = None) -> tuple[Attempt, ...]:
    """Return the attempts of a job, oldest first: all of them, or only the `last` ones."""
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
    """Record the outcome of a former attempt, with an event; the job does not change."""
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
