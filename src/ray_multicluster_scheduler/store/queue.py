"""The queue as the leader reads it: jobs to plan, on a cluster, and those that must end without running."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, bindparam, exists, func, or_, select

from ray_multicluster_scheduler.core.lifecycle.stopping import Presence, stop_step
from ray_multicluster_scheduler.core.lifecycle.transitions import waited_too_long
from ray_multicluster_scheduler.model.job import Job, Target
from ray_multicluster_scheduler.model.states import FINAL, LIVE, JobState
from ray_multicluster_scheduler.store.job_rows import (
    DEPENDENCY_FAILED,
    JOB_COLUMNS,
    TARGET_STOPPED,
    get_jobs,
    read_jobs,
)
from ray_multicluster_scheduler.store.schema.prepared import ForIds
from ray_multicluster_scheduler.store.schema.tables import dependencies, jobs
from ray_multicluster_scheduler.store.transactions import Transactions

#: How far back a chain of failed dependencies is followed, and how long its sentence may get.
MAX_LINKS = 8
MAX_REASON = 1000
#: Jobs that one statement asks for by their `seq`.
SEQS_AT_ONCE = 1000

_QUEUED = jobs.c.state == JobState.QUEUED.value
_IS_LIVE = jobs.c.state.in_(sorted(state.value for state in LIVE))
_LIVE = select(*JOB_COLUMNS).where(_IS_LIVE).order_by(jobs.c.seq)
_LIVE_STOPPING = select(*JOB_COLUMNS).where(_IS_LIVE, TARGET_STOPPED)
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
_OVERDUE = select(*JOB_COLUMNS).where(jobs.c.queue_deadline <= bindparam("now"))
_FAILED_NEED = select(dependencies.c.submission_id).where(DEPENDENCY_FAILED)
#: Few jobs have a failed dependency: `coalesce` keeps SQLite from using the index of the whole queue.
_QUEUED_UNINDEXED = func.coalesce(jobs.c.state, "") == JobState.QUEUED.value
_WITH_FAILED_DEPENDENCY = select(*JOB_COLUMNS).where(
    _QUEUED_UNINDEXED, jobs.c.submission_id.in_(_FAILED_NEED)
)
_QUEUED_STOPPING = select(*JOB_COLUMNS).where(_QUEUED, TARGET_STOPPED)


class Queue:
    """What waits, what is on a cluster, and what must not go on."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def runnable(self, *, now: float, user: str | None = None, limit: int | None = None) -> tuple[Job, ...]:
        """Return QUEUED jobs to plan, of one user or of all: the highest priority first, then the oldest.

        They are not stopped, their `not_before` is past, and their dependencies have all SUCCEEDED.
        """
        mine = [] if user is None else [jobs.c.user == user]
        with self._transactions.read() as tx:
            return read_jobs(tx, _runnable(now, *mine).limit(limit))

    def runnable_among(self, seqs: Sequence[int], *, now: float) -> tuple[Job, ...]:
        """Return those jobs of `runnable` that have one of these `seq`s; what it costs depends on these."""
        found: list[Job] = []
        with self._transactions.read() as tx:
            for start in range(0, len(seqs), SEQS_AT_ONCE):
                some = seqs[start : start + SEQS_AT_ONCE]
                found += read_jobs(tx, _runnable(now, jobs.c.seq.in_(some)))
        return tuple(found)

    def count_runnable(self, *, now: float, users: Collection[str], priority: int, before_seq: int) -> int:
        """Count the jobs of `runnable` of these users and this priority that are older than a `seq`.

        A job that has waited longer than its `queue_timeout_s` is not counted. No row is read.
        """
        older = (jobs.c.priority == priority, jobs.c.seq < before_seq)
        in_time = or_(jobs.c.queue_deadline.is_(None), jobs.c.queue_deadline > now)
        counted = _runnable(now, *older, in_time, jobs.c.user.in_(users)).order_by(None)
        with self._transactions.read() as tx:
            return tx.scalar(counted.with_only_columns(func.count())) or 0

    def arrivals(self, *, after: int, limit: int) -> tuple[tuple[Job, tuple[str, ...]], ...]:
        """Return QUEUED jobs with a `seq` above `after`, in that order, with their open dependencies.

        The cost depends only on the number returned, not on the queue or the history. Jobs with a stop
        request are left out.
        """
        needs: dict[str, list[str]] = {}
        with self._transactions.read() as tx:
            queued = read_jobs(tx, _ARRIVALS, after=after, most=limit)
            dependents = [job.submission_id for job in queued if job.spec.depends_on]
            for submission_id, need in _OPEN_NEEDS.rows(tx, dependents):
                needs.setdefault(submission_id, []).append(need)
        return tuple((job, tuple(needs.get(job.submission_id, ()))) for job in queued)

    def live(self) -> tuple[Job, ...]:
        """Return all jobs that hold an attempt on a cluster (PLACED to LOST), oldest first."""
        with self._transactions.read() as tx:
            return read_jobs(tx, _LIVE)

    def stopping(self) -> tuple[Job, ...]:
        """Return the live jobs with a stop request."""
        with self._transactions.read() as tx:
            return read_jobs(tx, _LIVE_STOPPING)

    def blocked(self, *, now: float) -> tuple[tuple[Job, str], ...]:
        """Return QUEUED jobs that must end now, oldest first, each with its reason.

        These are jobs with a dependency that ended without success (the reason has the chain), jobs that
        waited longer than their `queue_timeout_s`, and jobs whose target is STOPPED. A stop request is named
        before a failed dependency.
        """
        blocked_by_id: dict[str, tuple[Job, str]] = {}
        with self._transactions.read() as tx:
            for job in read_jobs(tx, _OVERDUE, now=now):
                blocked_by_id[job.submission_id] = job, waited_too_long(job)
            dependents = read_jobs(tx, _WITH_FAILED_DEPENDENCY)
            causes = _causes(tx, dependents)
            for job in dependents:
                blocked_by_id[job.submission_id] = job, _chain(job, causes)
            for job in read_jobs(tx, _QUEUED_STOPPING):
                blocked_by_id[job.submission_id] = job, stop_step(job, Presence.QUEUED).reason
        return tuple(sorted(blocked_by_id.values(), key=lambda pair: pair[0].seq))


def _runnable(now: float, *which: ColumnElement[bool]) -> Select[Any]:
    return (
        select(*JOB_COLUMNS)
        .where(
            _QUEUED,
            jobs.c.target == Target.FINISHED.value,
            jobs.c.not_before <= now,
            ~exists().where(dependencies.c.submission_id == jobs.c.submission_id),
            *which,
        )
        .order_by(jobs.c.priority.desc(), jobs.c.seq)
    )


def _causes(tx: Connection, dependents: Iterable[Job]) -> dict[str, Job]:
    """Load the dependencies of these jobs, and recursively those of dependencies that never ran."""
    causes: dict[str, Job] = {}
    level = list(dependents)
    for _ in range(MAX_LINKS):
        missing = {need for job in level for need in job.spec.depends_on} - set(causes)
        loaded = get_jobs(tx, sorted(missing))
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
