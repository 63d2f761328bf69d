"""Read jobs: one, many, lists and counts."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

from sqlalchemy import (
    JSON,
    Connection,
    Select,
    Text,
    cast,
    func,
    literal_column,
    or_,
    select,
    text,
)

from ray_multicluster_scheduler.errors import JobNotFound
from ray_multicluster_scheduler.model.access import OpenJobs
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store.schema.prepared import ForIds
from ray_multicluster_scheduler.store.schema.rows import (
    JOB_FIELDS,
    claim_from,
    job_from,
)
from ray_multicluster_scheduler.store.schema.tables import jobs, tags

#: Written exactly as in the index: SQLite uses a partial index only if the statement has its condition.
TARGET_STOPPED = jobs.c.target == literal_column("'STOPPED'")
DEPENDENCY_FAILED = text("dependencies.failed")
#: All columns of a job. JSON is read as text, because `rows.job_from` has parsed most of it before.
JOB_COLUMNS = tuple(
    cast(column, Text).label(column.name) if isinstance(column.type, JSON) else column
    for column in (jobs.c[name] for name in JOB_FIELDS)
)
_JOBS = ForIds(lambda ids: select(*JOB_COLUMNS).where(jobs.c.submission_id.in_(ids)))
_PROGRESS = ForIds(
    lambda ids: select(jobs.c.submission_id, jobs.c.state, jobs.c.attempt, jobs.c.target).where(
        jobs.c.submission_id.in_(ids)
    )
)
_EXISTING_IDS = ForIds(lambda ids: select(jobs.c.submission_id).where(jobs.c.submission_id.in_(ids)))

_EXISTING_GROUPS = ForIds(lambda names: select(jobs.c.group).where(jobs.c.group.in_(names)).distinct())


def read_jobs(tx: Connection, statement: Select[Any], **values: Any) -> tuple[Job, ...]:
    """Run a SELECT of whole jobs."""
    return tuple([job_from(row) for row in tx.execute(statement, values).all()])


def taken(tx: Connection, words: Sequence[str]) -> frozenset[str]:
    """Return those of these words that are the id or the group of a job."""
    found = (*_EXISTING_IDS.rows(tx, words), *_EXISTING_GROUPS.rows(tx, words))
    return frozenset(word for (word,) in found)


def get(tx: Connection, submission_id: str) -> Job:
    """Return one job or raise `JobNotFound`."""
    for job in read_jobs(tx, select(*JOB_COLUMNS).where(jobs.c.submission_id == submission_id)):
        return job
    raise JobNotFound(submission_id)


def get_many(tx: Connection, submission_ids: Sequence[str]) -> dict[str, Job]:
    """Return those of these jobs that exist."""
    return {job.submission_id: job for job in map(job_from, _JOBS.rows(tx, submission_ids))}


def get_changed(tx: Connection, submission_ids: Collection[str], known: Mapping[str, Job]) -> dict[str, Job]:
    """Do what `get_many` does, but reuse `known` jobs whose state, attempt and target are the same.

    Only the leader and `request_stop` modify a job, and a stop request changes the target. A job that is
    removed may change the head of others, which no move depends on.
    """
    known_ids = [submission_id for submission_id in submission_ids if submission_id in known]
    unchanged = {
        submission_id: job
        for submission_id, *progress in _PROGRESS.rows(tx, known_ids)
        if progress == [(job := known[submission_id]).state.value, job.attempt, job.target.value]
    }
    return {**unchanged, **get_many(tx, [each for each in submission_ids if each not in unchanged])}


def require(tx: Connection, submission_ids: Sequence[str]) -> None:
    """Raise `JobNotFound` unless all of these jobs are there."""
    existing = {submission_id for (submission_id,) in _EXISTING_IDS.rows(tx, submission_ids)}
    for submission_id in submission_ids:
        if submission_id not in existing:
            raise JobNotFound(submission_id)


def list_jobs(
    tx: Connection,
    *,
    states: Sequence[JobState] | None,
    equal: Mapping[str, str | None],
    tag: str | None,
    since: float | None,
    changed: tuple[float | None, float | None],
    before: int | None,
    text: str | None,
    heads_only: bool,
    head: str | None,
    limit: int | None,
) -> tuple[Job, ...]:
    """Return jobs, newest first, that match every filter. `equal` maps columns to values, None to any."""
    if heads_only:  # the group of a head is indexed by itself
        equal = {**equal, "group": None, "head_group": equal.get("group")}
    statement = _matching(equal, tag, since, before, text).limit(limit)
    if changed[0] is not None:
        statement = statement.where(jobs.c.changed_at >= changed[0])
    if changed[1] is not None:
        statement = statement.where(jobs.c.changed_at < changed[1])
    if heads_only:
        statement = statement.where(jobs.c.head.is_(None))
    if states is None and head is None:
        return read_jobs(tx, statement)
    # One query for each state: it reads the index backwards, up to the limit, and need not sort.
    wanted = tuple(JobState) if states is None else tuple(dict.fromkeys(states))
    if head is not None:
        members = statement.where(jobs.c.head == head)
        found = [_read_in_state(tx, members, state) for state in wanted]
        itself = read_jobs(tx, statement.where(jobs.c.submission_id == head))
        found.append(tuple(job for job in itself if job.state in wanted))
    elif heads_only and equal["user"] is None:  # SQLite would sort all heads of a user
        found = [_read_in_state(tx, statement, state) for state in wanted]
    else:
        found = [read_jobs(tx, statement.where(jobs.c.state == state.value)) for state in wanted]
    return tuple(sorted(chain.from_iterable(found), key=lambda job: job.seq, reverse=True)[:limit])


def _read_in_state(tx: Connection, statement: Select[Any], state: JobState) -> tuple[Job, ...]:
    """Read jobs in one state, newest first, by an index that has the state before the age.

    The state is a range, and the order begins with it. Otherwise PostgreSQL would go through jobs in all
    states, from the newest on, in the hope of finding some soon.
    """
    in_state = statement.where(jobs.c.state.between(state.value, state.value))
    return read_jobs(tx, in_state.order_by(None).order_by(jobs.c.state.desc(), jobs.c.seq.desc()))


def _matching(
    equal: Mapping[str, str | None],
    tag: str | None,
    since: float | None,
    before: int | None,
    text: str | None,
) -> Select[Any]:
    """Return a SELECT of the jobs that match these filters, newest first."""
    statement = select(*JOB_COLUMNS).order_by(jobs.c.seq.desc())
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
        searched = (jobs.c.submission_id, jobs.c.name, jobs.c.group, jobs.c.spec["entrypoint"].as_string())
        statement = statement.where(or_(*(column.icontains(text, autoescape=True) for column in searched)))
    return statement


def ids_beginning(tx: Connection, prefix: str, *, limit: int) -> tuple[str, ...]:
    """Return submission ids with this prefix, in order: a range of the index."""
    column = jobs.c.submission_id
    rows = tx.execute(
        select(column)
        .where(column >= prefix, column < prefix + chr(sys.maxunicode))
        .order_by(column)
        .limit(limit)
    )
    return tuple(submission_id for (submission_id,) in rows)


def counts(
    tx: Connection,
    states: Collection[JobState],
    *,
    user: str | None = None,
    changed_since: float | None = None,
) -> dict[JobState, int]:
    """Return how many jobs are in each of these states: of all users, or of one."""
    statement = (
        select(jobs.c.state, func.count())
        .where(jobs.c.state.in_(sorted(state.value for state in states)))
        .group_by(jobs.c.state)
    )
    if user is not None:
        statement = statement.where(jobs.c.user == user)
    if changed_since is not None:
        statement = statement.where(jobs.c.changed_at >= changed_since)
    return {JobState(state): count for state, count in tx.execute(statement)}


def open_jobs(tx: Connection, user: str, *, claims: bool) -> OpenJobs:
    """Count the open jobs of a user; with `claims`, also add up what they claim."""
    is_open = (jobs.c.user == user, jobs.c.ended_at.is_(None))
    if not claims:
        return OpenJobs(
            count=tx.scalar(select(func.count()).select_from(jobs).where(*is_open)) or 0, claim={}
        )
    return _added_up(tx.scalars(select(cast(jobs.c.spec, Text)).where(*is_open)).all())


def open_jobs_by_user(tx: Connection) -> dict[str, OpenJobs]:
    """Count the open jobs of every user, and add up what they claim."""
    specs: dict[str, list[str]] = {}
    statement = select(jobs.c.user, cast(jobs.c.spec, Text)).where(jobs.c.ended_at.is_(None))
    for user, spec in tx.execute(statement):
        specs.setdefault(user, []).append(spec)
    return {user: _added_up(found) for user, found in specs.items()}


def _added_up(specs: Sequence[str]) -> OpenJobs:
    claim: dict[str, float] = {}
    for spec in specs:
        for name, amount in claim_from(spec):
            claim[name] = claim.get(name, 0.0) + amount
    return OpenJobs(count=len(specs), claim=claim)
