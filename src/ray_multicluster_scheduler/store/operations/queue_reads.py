"""Read the queue: jobs to plan next, and jobs that hold an attempt on a cluster."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, exists, select

from ray_multicluster_scheduler.model.job import Job, Target
from ray_multicluster_scheduler.model.states import LIVE, JobState
from ray_multicluster_scheduler.store.operations.job_reads import (
    JOB_COLUMNS,
    TARGET_STOPPED,
    read_jobs,
)
from ray_multicluster_scheduler.store.schema.prepared import ForIds
from ray_multicluster_scheduler.store.schema.tables import dependencies, jobs

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
_OPEN_NEEDS = ForIds(
    lambda ids: select(dependencies.c.submission_id, dependencies.c.needs).where(
        dependencies.c.submission_id.in_(ids)
    )
)


def runnable(tx: Connection, *, now: float, user: str | None, limit: int | None) -> tuple[Job, ...]:
    """Return jobs to plan: the highest priority first, then the oldest."""
    return read_jobs(
        tx,
        select(*JOB_COLUMNS)
        .where(
            jobs.c.state == JobState.QUEUED.value,
            jobs.c.target == Target.FINISHED.value,
            jobs.c.not_before <= now,
            ~exists().where(dependencies.c.submission_id == jobs.c.submission_id),
            *([] if user is None else [jobs.c.user == user]),
        )
        .order_by(jobs.c.priority.desc(), jobs.c.seq)
        .limit(limit),
    )


def arrivals(tx: Connection, *, after: int, limit: int) -> tuple[tuple[Job, tuple[str, ...]], ...]:
    """Return QUEUED jobs with a `seq` beyond `after`, each with its open dependencies."""
    queued = read_jobs(tx, _ARRIVALS, after=after, most=limit)
    needs: dict[str, list[str]] = {}
    dependents = [job.submission_id for job in queued if job.spec.depends_on]
    for submission_id, need in _OPEN_NEEDS.rows(tx, dependents):
        needs.setdefault(submission_id, []).append(need)
    return tuple((job, tuple(needs.get(job.submission_id, ()))) for job in queued)


def live(tx: Connection) -> tuple[Job, ...]:
    """Return all jobs that hold an attempt on a cluster, oldest first."""
    return read_jobs(tx, _LIVE)


def stopping(tx: Connection) -> tuple[Job, ...]:
    """Return the live jobs with a stop request."""
    return read_jobs(tx, _STOPPING)
