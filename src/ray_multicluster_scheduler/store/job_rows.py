"""Rows of jobs, and which of several jobs a list shows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    JSON,
    Connection,
    ScalarSelect,
    Select,
    Text,
    bindparam,
    case,
    cast,
    func,
    insert,
    literal_column,
    null,
    select,
    text,
    update,
)

from ray_multicluster_scheduler.errors import JobNotFound
from ray_multicluster_scheduler.model.access import OpenJobs
from ray_multicluster_scheduler.model.job import Job, JobSpec
from ray_multicluster_scheduler.store.schema.prepared import ForIds, Prepared, chunks
from ray_multicluster_scheduler.store.schema.rows import JOB_FIELDS, claim_from, job_from
from ray_multicluster_scheduler.store.schema.tables import events, jobs

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
EXISTING_IDS = ForIds(lambda ids: select(jobs.c.submission_id).where(jobs.c.submission_id.in_(ids)))
WRITE_EVENTS = Prepared(insert(events))


def read_jobs(tx: Connection, statement: Select[Any], **values: Any) -> tuple[Job, ...]:
    """Run a SELECT of whole jobs."""
    return tuple([job_from(row) for row in tx.execute(statement, values).all()])


def get_job(tx: Connection, submission_id: str) -> Job:
    """Return one job or raise `JobNotFound`."""
    for job in read_jobs(tx, select(*JOB_COLUMNS).where(jobs.c.submission_id == submission_id)):
        return job
    raise JobNotFound(submission_id)


def get_jobs(tx: Connection, submission_ids: Sequence[str]) -> dict[str, Job]:
    """Return those of these jobs that exist."""
    return {job.submission_id: job for job in map(job_from, _JOBS.rows(tx, submission_ids))}


def get_changed(tx: Connection, submission_ids: Collection[str], known: Mapping[str, Job]) -> dict[str, Job]:
    """Do what `get_jobs` does, but reuse `known` jobs whose state, attempt and target are the same.

    Only the leader and `request_stop` modify a job, and a stop request changes the target. A job that is
    removed may change the head of others, which no move depends on.
    """
    known_ids = [submission_id for submission_id in submission_ids if submission_id in known]
    unchanged = {
        submission_id: job
        for submission_id, *progress in _PROGRESS.rows(tx, known_ids)
        if progress == [(job := known[submission_id]).state.value, job.attempt, job.target.value]
    }
    return {**unchanged, **get_jobs(tx, [each for each in submission_ids if each not in unchanged])}


def require_jobs(tx: Connection, submission_ids: Sequence[str]) -> None:
    """Raise `JobNotFound` unless all of these jobs are there."""
    existing = {submission_id for (submission_id,) in EXISTING_IDS.rows(tx, submission_ids)}
    for submission_id in submission_ids:
        if submission_id not in existing:
            raise JobNotFound(submission_id)


def open_jobs_of(tx: Connection, user: str, *, claims: bool) -> OpenJobs:
    """Count the open jobs of a user; with `claims`, also add up what they claim."""
    is_open = (jobs.c.user == user, jobs.c.ended_at.is_(None))
    if not claims:
        return OpenJobs(
            count=tx.scalar(select(func.count()).select_from(jobs).where(*is_open)) or 0, claim={}
        )
    return added_up(tx.scalars(select(cast(jobs.c.spec, Text)).where(*is_open)).all())


def added_up(specs: Sequence[str]) -> OpenJobs:
    """Count the jobs with these specs, and add up what they claim."""
    claim: dict[str, float] = {}
    for spec in specs:
        for name, amount in claim_from(spec):
            claim[name] = claim.get(name, 0.0) + amount
    return OpenJobs(count=len(specs), claim=claim)


# Rows that stand for several jobs: under which job a list shows another one.
#
# The jobs of a user's group are listed under the first of it, the others of a chain of dependencies under the
# first of that. Such a first job, a head, has none itself and belongs to the same user; of a group, it is one
# of the group as long as there is one.

_HEIRS = ForIds(
    lambda ids: (
        select(
            jobs.c.head,
            func.coalesce(
                func.min(case((jobs.c.group.is_not(None), jobs.c.seq))),  # only its own group is under a head
                func.min(jobs.c.seq),
            ),
        )
        .where(jobs.c.head.in_(ids))
        .group_by(jobs.c.head)
    )
)
_members = jobs.alias("members")
_heirs = jobs.alias("heirs")
_MOVE_MEMBERS = Prepared(
    update(jobs)
    .where(jobs.c.head == bindparam("removed"))
    .values(
        head=select(_heirs.c.submission_id).where(_heirs.c.seq == bindparam("heir_seq")).scalar_subquery()
    )
)
_BECOME_HEAD = Prepared(
    update(jobs).where(jobs.c.seq == bindparam("heir_seq")).values(head=null(), head_group=jobs.c.group)
)


def heads_of(
    tx: Connection, specs: Mapping[str, JobSpec], known: Mapping[str, tuple[str, str | None]]
) -> dict[str, str]:
    """Return under which job each new one is listed; those that are listed themselves are left out.

    `known` are the dependencies that existed before: (user, head).
    """
    if not any(spec.group is not None or spec.depends_on for spec in specs.values()):
        return {}
    groups = _heads_of_groups(tx, specs)
    for submission_id, spec in specs.items():
        if spec.group is not None:
            groups.setdefault((spec.user, spec.group), submission_id)
    users = {need: user for need, (user, _) in known.items()}
    users.update({submission_id: spec.user for submission_id, spec in specs.items()})
    #: For each job the one that a list shows for it, perhaps itself.
    shown = {need: head or need for need, (_, head) in known.items()}
    shown.update({head: head for head in groups.values()})
    for submission_id in specs:
        way, above = [], submission_id
        while above not in shown:
            way.append(above)
            above = _next_above(above, specs[above], groups, users)
            if above == way[-1]:
                shown[above] = above
        shown.update(dict.fromkeys(way, shown[above]))
    return {each: shown[each] for each in specs if shown[each] != each}


def _heads_of_groups(tx: Connection, specs: Mapping[str, JobSpec]) -> dict[tuple[str, str], str]:
    """Return the heads of those groups of these jobs that exist already, by user and group."""
    groups = sorted({spec.group for spec in specs.values() if spec.group is not None})
    users = sorted({spec.user for spec in specs.values() if spec.group is not None})
    return {
        (user, group): submission_id
        for chunk in chunks(groups)
        for user, group, submission_id in tx.execute(
            select(jobs.c.user, jobs.c.head_group, jobs.c.submission_id).where(
                jobs.c.head_group.in_(chunk), jobs.c.user.in_(users)
            )
        )
    }


def _next_above(
    submission_id: str,
    spec: JobSpec,
    groups: Mapping[tuple[str, str], str],
    users: Mapping[str, str],
) -> str:
    """Return the job with which this one is listed; itself, if with no other one."""
    if spec.group is not None:
        return groups[spec.user, spec.group]
    if spec.depends_on and users[spec.depends_on[0]] == spec.user:
        return spec.depends_on[0]
    return submission_id


def has_more_members_than(most: int) -> ScalarSelect[int]:
    """Return an expression that is NULL unless more than `most` are listed under a row of `jobs`."""
    beyond = select(_members.c.seq).where(_members.c.head == jobs.c.submission_id).limit(1).offset(most)
    return beyond.scalar_subquery()


def replace_heads(tx: Connection, removed: Sequence[str]) -> None:
    """Let the oldest of those that were listed under a removed job take its place, its group first.

    This writes each of them. Call it when the removed jobs are gone.
    """
    heirs = [{"removed": head, "heir_seq": seq} for head, seq in _HEIRS.rows(tx, removed)]
    _MOVE_MEMBERS.run(tx, heirs)
    _BECOME_HEAD.run(tx, heirs)
