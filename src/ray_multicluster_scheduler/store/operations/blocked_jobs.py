"""Find queued jobs that must end without running, and say why, down to the first cause."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, bindparam, func, select

from ray_multicluster_scheduler.core.lifecycle.stopping import Presence, stop_step
from ray_multicluster_scheduler.core.lifecycle.transitions import waited_too_long
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.store.operations.job_reads import (
    DEPENDENCY_FAILED,
    JOB_COLUMNS,
    TARGET_STOPPED,
    get_many,
    read_jobs,
)
from ray_multicluster_scheduler.store.schema.tables import dependencies, jobs

#: How far back a chain of failed dependencies is followed, and how long its sentence may get.
MAX_LINKS = 8
MAX_REASON = 1000

_QUEUED = jobs.c.state == JobState.QUEUED.value
_OVERDUE = select(*JOB_COLUMNS).where(jobs.c.queue_deadline <= bindparam("now"))
_FAILED_NEED = select(dependencies.c.submission_id).where(DEPENDENCY_FAILED)
#: Few jobs have a failed dependency: `coalesce` keeps SQLite from using the index of the whole queue.
_QUEUED_UNINDEXED = func.coalesce(jobs.c.state, "") == JobState.QUEUED.value
_WITH_FAILED_DEPENDENCY = select(*JOB_COLUMNS).where(
    _QUEUED_UNINDEXED, jobs.c.submission_id.in_(_FAILED_NEED)
)
_STOPPING = select(*JOB_COLUMNS).where(_QUEUED, TARGET_STOPPED)


def blocked(tx: Connection, *, now: float) -> tuple[tuple[Job, str], ...]:
    """Return these jobs, oldest first. A stop request is named before a failed dependency."""
    blocked_by_id: dict[str, tuple[Job, str]] = {}
    for job in read_jobs(tx, _OVERDUE, now=now):
        blocked_by_id[job.submission_id] = job, waited_too_long(job)
    dependents = read_jobs(tx, _WITH_FAILED_DEPENDENCY)
    causes = _causes(tx, dependents)
    for job in dependents:
        blocked_by_id[job.submission_id] = job, _chain(job, causes)
    for job in read_jobs(tx, _STOPPING):
        blocked_by_id[job.submission_id] = job, stop_step(job, Presence.QUEUED).reason
    return tuple(sorted(blocked_by_id.values(), key=lambda pair: pair[0].seq))


def _causes(tx: Connection, dependents: Iterable[Job]) -> dict[str, Job]:
    """Load the dependencies of these jobs, and recursively those of dependencies that never ran."""
    causes: dict[str, Job] = {}
    level = list(dependents)
    for _ in range(MAX_LINKS):
        missing = {need for job in level for need in job.spec.depends_on} - set(causes)
        loaded = get_many(tx, sorted(missing))
        causes |= loaded
        level = [job for job in loaded.values() if _never_ran(job)]
    return causes


def _chain(job: Job, causes: Mapping[str, Job]) -> str:
    """Say `dependency 'b' failed because its dependency 'a' failed: <reason of a>`."""
    links = []
    cause = _cause(job, causes)
    last = job
    while cause is not None:
        verb = "was stopped" if cause.state is JobState.STOPPED else "failed"
        links.append(f"dependency {cause.submission_id!r} {verb}")
        last = cause
        cause = _cause(cause, causes) if _never_ran(cause) else None
    sentence = f"{' because its '.join(links)}: {last.reason}"
    return sentence if len(sentence) <= MAX_REASON else f"{sentence[: MAX_REASON - 2]} …"


def _cause(job: Job, causes: Mapping[str, Job]) -> Job | None:
    """Return the first dependency that ended without success, not later than the job itself."""
    until = math.inf if job.ended_at is None else job.ended_at
    for need in job.spec.depends_on:
        dependency = causes.get(need)
        if dependency is not None and _failed(dependency) and (dependency.ended_at or 0.0) <= until:
            return dependency
    return None


def _failed(job: Job) -> bool:
    return job.state in FINAL and job.state is not JobState.SUCCEEDED


def _never_ran(job: Job) -> bool:
    return job.state is JobState.FAILED and job.attempt == 0
