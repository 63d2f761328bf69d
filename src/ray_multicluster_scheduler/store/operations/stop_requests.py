"""Ask jobs to stop, and their children with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import (
    Connection,
    bindparam,
    select,
    update,
)

from ray_multicluster_scheduler.errors import JobNotFound
from ray_multicluster_scheduler.model.job import Job, Target
from ray_multicluster_scheduler.store.operations.job_events import WRITE_EVENTS
from ray_multicluster_scheduler.store.operations.job_reads import (
    JOB_COLUMNS,
    get_many,
)
from ray_multicluster_scheduler.store.schema.prepared import ForIds, Prepared
from ray_multicluster_scheduler.store.schema.rows import (
    event_row,
    job_from,
    note,
)
from ray_multicluster_scheduler.store.schema.tables import jobs
from ray_multicluster_scheduler.text.storable import storable

_CHILDREN = ForIds(lambda ids: select(*JOB_COLUMNS).where(jobs.c.parent.in_(ids)))
_STOP = Prepared(update(jobs).where(jobs.c.submission_id == bindparam("of_job")))


def request_stop(
    tx: Connection, submission_ids: Sequence[str], *, now: float, reason: str
) -> tuple[Job, ...]:
    """Set the target of these jobs to STOPPED, each with an event; ended and stopping jobs stay as they are.

    The children of a job with `stop_children` are stopped in the same transaction.
    """
    reason = storable(reason)
    requested = get_many(tx, submission_ids)
    for submission_id in submission_ids:
        if submission_id not in requested:
            raise JobNotFound(submission_id)
    stopping = [
        (job, why)
        for job, why in _with_children(tx, requested, reason)
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


def _with_children(tx: Connection, requested: Mapping[str, Job], reason: str) -> list[tuple[Job, str]]:
    """Return the requested jobs and the children that stop with them, each with its reason."""
    stops = [(job, reason) for job in requested.values()]
    visited, parents = set(requested), requested
    while parents := {name: job for name, job in parents.items() if job.spec.stop_children}:
        children = [job_from(row) for row in _CHILDREN.rows(tx, list(parents))]
        parents = {
            job.submission_id: job
            for job in children
            if job.submission_id not in visited and job.spec.user == parents[str(job.spec.parent)].spec.user
        }
        visited |= set(parents)
        stops += [(job, f"stopped with its parent {job.spec.parent}: {reason}") for job in parents.values()]
    return stops
