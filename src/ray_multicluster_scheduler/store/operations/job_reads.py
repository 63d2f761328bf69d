"""Reading jobs, what may be planned next, and asking jobs to stop."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from sqlalchemy import (
    JSON,
    Connection,
    Select,
    Text,
    bindparam,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
    type_coerce,
    update,
)

from ray_multicluster_scheduler.errors import JobNotFound
from ray_multicluster_scheduler.model.job import Job, Target
from ray_multicluster_scheduler.model.resources import Resources
from ray_multicluster_scheduler.model.states import LIVE, JobState
from ray_multicluster_scheduler.store.schema.prepared import ForIds, Prepared
from ray_multicluster_scheduler.store.schema.rows import JOB_FIELDS, claim_from, event_row, job_from, note
from ray_multicluster_scheduler.store.schema.tables import dependencies, events, jobs, tags

#: Written out as in the index: SQLite uses a partial one only where its condition stands in the statement.
TARGET_STOPPED = jobs.c.target == literal_column("'STOPPED'")
IS_DELAYED = jobs.c.not_before > literal_column("0")
DEPENDENCY_FAILED = text("dependencies.failed")
#: A whole job. JSON comes as text: most of it is known (`rows.job_from`).
JOB_COLUMNS = tuple(
    type_coerce(column, Text).label(column.name) if isinstance(column.type, JSON) else column
    for column in (jobs.c[name] for name in JOB_FIELDS)
)
WRITE_EVENTS = Prepared(insert(events))
_QUEUED = jobs.c.state == JobState.QUEUED.value
_IS_LIVE = jobs.c.state.in_(sorted(state.value for state in LIVE))
_LIVE = select(*JOB_COLUMNS).where(_IS_LIVE).order_by(jobs.c.seq)
_STOPPING = select(*JOB_COLUMNS).where(_IS_LIVE, TARGET_STOPPED)
_ARRIVALS = (
    select(*JOB_COLUMNS)
    .where(_QUEUED, jobs.c.seq > bindparam("after"), jobs.c.target == Target.FINISHED.value)
    .order_by(jobs.c.seq)
    .limit(bindparam("most"))
)
_NEXT_RETRY = select(func.min(jobs.c.not_before)).where(
    IS_DELAYED, jobs.c.not_before > bindparam("now"), _QUEUED
)
_NEXT_OVERDUE = select(func.min(jobs.c.queue_deadline)).where(jobs.c.queue_deadline > bindparam("now"))
_CHILDREN = ForIds(lambda ids: select(*JOB_COLUMNS).where(jobs.c.parent.in_(ids)))
_JOBS = ForIds(lambda ids: select(*JOB_COLUMNS).where(jobs.c.submission_id.in_(ids)))
_MARKS = ForIds(
    lambda ids: select(jobs.c.submission_id, jobs.c.state, jobs.c.attempt, jobs.c.target).where(
        jobs.c.submission_id.in_(ids)
    )
)
_KNOWN_IDS = ForIds(lambda ids: select(jobs.c.submission_id).where(jobs.c.submission_id.in_(ids)))
_OPEN_NEEDS = ForIds(
    lambda ids: select(dependencies.c.submission_id, dependencies.c.needs).where(
        dependencies.c.submission_id.in_(ids)
    )
)
_STOP = Prepared(update(jobs).where(jobs.c.submission_id == bindparam("of_job")))


def read_jobs(tx: Connection, statement: Select[Any], **values: Any) -> tuple[Job, ...]:
    """Run a SELECT of whole jobs."""
    return tuple([job_from(row) for row in tx.execute(statement, values).all()])


def get(tx: Connection, submission_id: str) -> Job:
    """Return one job or raise `JobNotFound`."""
    for job in read_jobs(tx, select(*JOB_COLUMNS).where(jobs.c.submission_id == submission_id)):
        return job
    raise JobNotFound(submission_id)


def get_many(tx: Connection, submission_ids: Sequence[str]) -> dict[str, Job]:
    """Return the known ones among these ids."""
    return {job.submission_id: job for job in map(job_from, _JOBS.rows(tx, submission_ids))}


def get_changed(tx: Connection, submission_ids: Collection[str], known: Mapping[str, Job]) -> dict[str, Job]:
    """Return the same as `get_many`, but reuse `known` jobs whose state, attempt and target are unchanged.

    Only the leader and `request_stop` modify a job, and a stop request changes the target.
    """
    compared = [submission_id for submission_id in submission_ids if submission_id in known]
    same = {
        submission_id: job
        for submission_id, *marks in _MARKS.rows(tx, compared)
        if marks == [(job := known[submission_id]).state.value, job.attempt, job.target.value]
    }
    return {**same, **get_many(tx, [each for each in submission_ids if each not in same])}


def require(tx: Connection, submission_ids: Sequence[str]) -> None:
    """Raise `JobNotFound` unless all of these jobs are there."""
    known = {submission_id for (submission_id,) in _KNOWN_IDS.rows(tx, submission_ids)}
    for submission_id in submission_ids:
        if submission_id not in known:
            raise JobNotFound(submission_id)


def list_jobs(
    tx: Connection,
    *,
    states: Sequence[JobState] | None,
    equal: Mapping[str, str | None],
    tag: str | None,
    since: float | None,
    before: int | None,
    text: str | None,
    limit: int | None,
) -> tuple[Job, ...]:
    """Return jobs, newest first, that match every given filter; `equal` is by column, None for any."""
    statement = select(*JOB_COLUMNS).order_by(jobs.c.seq.desc()).limit(limit)
    for column, value in equal.items():
        if value is not None:
            statement = statement.where(jobs.c[column] == value)
    if tag is not None:
        statement = statement.where(
            jobs.c.submission_id.in_(select(tags.c.submission_id).where(tags.c.tag == tag))
        )
    if since is not None:
        statement = statement.where(jobs.c.accepted_at >= since)
    if before is not None:
        statement = statement.where(jobs.c.seq < before)
    if text is not None:
        told = (jobs.c.submission_id, jobs.c.name, jobs.c.group, jobs.c.spec["entrypoint"].as_string())
        statement = statement.where(or_(*(column.icontains(text, autoescape=True) for column in told)))
    if states is None:
        return read_jobs(tx, statement)
    # One state after the other: each is read from its end and no further than the limit, without sorting.
    each = [read_jobs(tx, statement.where(jobs.c.state == state.value)) for state in dict.fromkeys(states)]
    return tuple(sorted(chain.from_iterable(each), key=lambda job: job.seq, reverse=True)[:limit])


def ids_beginning(tx: Connection, prefix: str, *, limit: int) -> tuple[str, ...]:
    """Return submission ids that begin so, in their order: a range of the index."""
    column = jobs.c.submission_id
    found = tx.execute(
        select(column)
        .where(column >= prefix, column < prefix + chr(sys.maxunicode))
        .order_by(column)
        .limit(limit)
    )
    return tuple(submission_id for (submission_id,) in found)


def counts(tx: Connection, states: Collection[JobState], *, user: str | None = None) -> dict[JobState, int]:
    """Return how many jobs are in each of these states: of all users, or of one."""
    statement = (
        select(jobs.c.state, func.count())
        .where(jobs.c.state.in_(sorted(state.value for state in states)))
        .group_by(jobs.c.state)
    )
    if user is not None:
        statement = statement.where(jobs.c.user == user)
    return {JobState(state): count for state, count in tx.execute(statement)}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenJobs:
    """The jobs of a user that have not ended: how many, and what they claim together."""

    count: int
    claim: Resources


def open_jobs(tx: Connection, user: str, *, claims: bool) -> OpenJobs:
    """Return what a user has now; without `claims`, only how many."""
    mine = (jobs.c.user == user, jobs.c.ended_at.is_(None))
    if not claims:
        return OpenJobs(count=tx.scalar(select(func.count()).select_from(jobs).where(*mine)) or 0, claim={})
    specs = tx.scalars(select(type_coerce(jobs.c.spec, Text)).where(*mine)).all()
    claim: dict[str, float] = {}
    for spec in specs:
        for name, amount in claim_from(spec):
            claim[name] = claim.get(name, 0.0) + amount
    return OpenJobs(count=len(specs), claim=claim)


def runnable(tx: Connection, *, now: float, limit: int | None) -> tuple[Job, ...]:
    """Return jobs to plan: the highest priority first, then the oldest."""
    return read_jobs(
        tx,
        select(*JOB_COLUMNS)
        .where(
            jobs.c.state == JobState.QUEUED.value,
            jobs.c.target == Target.FINISHED.value,
            jobs.c.not_before <= now,
            ~exists().where(dependencies.c.submission_id == jobs.c.submission_id),
        )
        .order_by(jobs.c.priority.desc(), jobs.c.seq)
        .limit(limit),
    )


def arrivals(tx: Connection, *, after: int, limit: int) -> tuple[tuple[Job, tuple[str, ...]], ...]:
    """Return QUEUED jobs with a larger number than `after`, and what each still waits for."""
    found = read_jobs(tx, _ARRIVALS, after=after, most=limit)
    needs: dict[str, list[str]] = {}
    waiting = [job.submission_id for job in found if job.spec.depends_on]
    for submission_id, need in _OPEN_NEEDS.rows(tx, waiting):
        needs.setdefault(submission_id, []).append(need)
    return tuple((job, tuple(needs.get(job.submission_id, ()))) for job in found)


def live(tx: Connection) -> tuple[Job, ...]:
    """Return all jobs that hold an attempt on a cluster, oldest first."""
    return read_jobs(tx, _LIVE)


def stopping(tx: Connection) -> tuple[Job, ...]:
    """Return the live jobs that somebody wants stopped."""
    return read_jobs(tx, _STOPPING)


def next_due(tx: Connection, *, now: float) -> float | None:
    """Return when time alone will next change what `runnable` or `blocked` say."""
    found = [tx.scalar(statement, {"now": now}) for statement in (_NEXT_RETRY, _NEXT_OVERDUE)]
    return min((due for due in found if due is not None), default=None)


def request_stop(
    tx: Connection, submission_ids: Sequence[str], *, now: float, reason: str
) -> tuple[Job, ...]:
    """Set the target to STOPPED, with an event, where it is not yet and the job has not ended.

    Jobs whose parent has asked for it are stopped with it, in the same transaction.
    """
    known = get_many(tx, submission_ids)
    for submission_id in submission_ids:
        if submission_id not in known:
            raise JobNotFound(submission_id)
    stopping = [
        (job, why)
        for job, why in _with_children(tx, known, reason)
        if not job.final and job.target is not Target.STOPPED
    ]
    _STOP.run(
        tx,
        [
            {"of_job": job.submission_id, "target": Target.STOPPED.value, "stop_reason": why, "reason": why}
            for job, why in stopping
        ],
    )
    WRITE_EVENTS.run(tx, [event_row(note(job, now=now, reason=why)) for job, why in stopping])
    changed = get_many(tx, submission_ids)
    return tuple(changed[submission_id] for submission_id in submission_ids)


def _with_children(tx: Connection, asked: Mapping[str, Job], reason: str) -> list[tuple[Job, str]]:
    """Return these jobs and those that are to be stopped with them, each with its reason."""
    found = [(job, reason) for job in asked.values()]
    seen, parents = set(asked), asked
    while parents := {name: job for name, job in parents.items() if job.spec.stop_children}:
        children = [job_from(row) for row in _CHILDREN.rows(tx, list(parents))]
        parents = {
            job.submission_id: job
            for job in children
            if job.submission_id not in seen and job.spec.user == parents[str(job.spec.parent)].spec.user
        }
        seen |= set(parents)
        found += [(job, f"stopped with its parent {job.spec.parent}: {reason}") for job in parents.values()]
    return found
