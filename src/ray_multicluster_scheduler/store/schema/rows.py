"""Convert records to rows and back. No SQL here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any

import pydantic_core
from sqlalchemy import RowMapping

from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, FailedSetup, Health, Node, Witness
from ray_multicluster_scheduler.model.job import Attempt, Job, JobEvent, JobSpec, Lease, Target
from ray_multicluster_scheduler.model.states import JobState

#: A whole job is read as these columns, in this order.
JOB_FIELDS = tuple(field.name for field in fields(Job))
_ATTEMPT_FIELDS = tuple(field.name for field in fields(Attempt))
_EVENT_FIELDS = tuple(field.name for field in fields(JobEvent))

#: Parsed specs to remember: a job is read at each of its moves, and its spec never changes.
CACHED_SPECS = 4096
ACCEPTED = "accepted"
#: The records that are stored as JSON, with the fields that they have in this version.
_FIELD_NAMES: Mapping[type[Any], frozenset[str]] = {
    record: frozenset(field.name for field in fields(record))
    for record in (JobSpec, ClusterSnapshot, Node, FailedSetup, Witness)
}
#: The columns that are the same for all new jobs: the defaults of the record.
_NEW = {
    **{field.name: field.default for field in fields(Job) if field.default is not MISSING},
    "state": JobState.QUEUED.value,
    "target": Target.FINISHED.value,
    "reason": ACCEPTED,
}


def to_json(value: Any) -> str:
    """Return the text for a JSON column. Records and mappings of any kind are allowed."""
    return pydantic_core.to_json(value, fallback=dict).decode()


def new_job(submission_id: str, spec: JobSpec, *, seq: int, now: float, head: str | None = None) -> Job:
    """Return a job that was just accepted, with the `seq` that the database has assigned."""
    return Job(
        seq=seq,
        submission_id=submission_id,
        spec=spec,
        accepted_at=now,
        changed_at=now,
        reason=ACCEPTED,
        head=head,
    )


def new_job_row(submission_id: str, spec: JobSpec, *, now: float, head: str | None = None) -> dict[str, Any]:
    """Return the row of a job that is being accepted."""
    return {
        **_NEW,
        "submission_id": submission_id,
        "spec": spec,
        "user": spec.user,
        "priority": spec.priority,
        "name": spec.name,
        "group": spec.group,
        "parent": spec.parent,
        "head": head,
        "head_group": spec.group if head is None else None,
        "idempotency_key": spec.idempotency_key,
        "accepted_at": now,
        "changed_at": now,
        "queue_deadline": None if spec.queue_timeout_s is None else now + spec.queue_timeout_s,
    }


def changed_values(before: Job, after: Job, names: Iterable[str]) -> dict[str, Any]:
    """Return the columns that a move writes if it sets these fields."""
    values = {name: getattr(after, name) for name in names}
    if "state" in values:
        values["state"] = after.state.value
    if after.state is JobState.QUEUED or before.state is JobState.QUEUED:
        limit = after.spec.queue_timeout_s if after.state is JobState.QUEUED else None
        values["queue_deadline"] = None if limit is None else after.changed_at + limit
    return values


def job_from(row: Sequence[Any]) -> Job:
    """Read a row of `jobs`: the columns `JOB_FIELDS`, with JSON as text."""
    values = dict(zip(JOB_FIELDS, row, strict=True))
    values["spec"] = _spec_from(values["spec"])
    values["state"] = JobState(values["state"])
    values["target"] = Target(values["target"])
    values["avoid"] = _names_from(values["avoid"])
    values["end_unreported"] = bool(values["end_unreported"])
    return Job(**values)


def _known_fields(record: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out fields of a newer version: this version could not use them."""
    names = _FIELD_NAMES[record]
    return {name: value for name, value in data.items() if name in names}


@lru_cache(maxsize=CACHED_SPECS)
def _spec_from(text: str) -> JobSpec:
    data: dict[str, Any] = _known_fields(JobSpec, json.loads(text))
    lists = {name: tuple(value) for name, value in data.items() if isinstance(value, list)}
    return JobSpec(**{**data, **lists})


@lru_cache(maxsize=2 * CACHED_SPECS)
def claim_from(text: str) -> tuple[tuple[str, float], ...]:
    """Read the claim of a job from its spec. Cached: with a quota, each submit adds up all open jobs."""
    return tuple(_spec_from(text).claim.items())


@lru_cache(maxsize=CACHED_SPECS)
def _names_from(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def attempt_row(attempt: Attempt) -> dict[str, Any]:
    """Return the row of an attempt."""
    return {name: getattr(attempt, name) for name in _ATTEMPT_FIELDS}


def attempt_from(row: RowMapping) -> Attempt:
    """Read a row of `attempts`."""
    return Attempt(**{name: row[name] for name in _ATTEMPT_FIELDS})


def note(job: Job, *, now: float, reason: str) -> JobEvent:
    """Return an event about a job that does not change its state."""
    return JobEvent(
        id=0,
        submission_id=job.submission_id,
        at=now,
        old=job.state,
        new=job.state,
        attempt=job.attempt,
        cluster=job.cluster,
        reason=reason,
    )


def event_row(event: JobEvent) -> dict[str, Any]:
    """Return the row of an event. The database assigns the `id`."""
    return {
        "submission_id": event.submission_id,
        "at": event.at,
        "old": None if event.old is None else event.old.value,
        "new": event.new.value,
        "attempt": event.attempt,
        "cluster": event.cluster,
        "reason": event.reason,
    }


def move_event_row(before: Job, after: Job, *, now: float, reason: str) -> dict[str, Any]:
    """Return the row of the event of a move."""
    return {
        "submission_id": after.submission_id,
        "at": now,
        "old": before.state.value,
        "new": after.state.value,
        "attempt": after.attempt,
        "cluster": after.cluster
        or before.cluster,  # of a job that goes back to the queue, the cluster that it left
        "reason": reason,
    }


def event_from(row: RowMapping) -> JobEvent:
    """Read a row of `events`."""
    values = {name: row[name] for name in _EVENT_FIELDS}
    values["old"] = None if row["old"] is None else JobState(row["old"])
    values["new"] = JobState(row["new"])
    return JobEvent(**values)


def lease_from(row: Sequence[Any]) -> Lease | None:
    """Read the row of `lease` as (holder, epoch, expires_at); None when nobody holds it."""
    holder, epoch, expires_at = row
    return None if holder is None else Lease(holder=holder, epoch=epoch, expires_at=expires_at)


def snapshot_from(data: Mapping[str, Any]) -> ClusterSnapshot:
    """Read a published snapshot. Unknown values stay None; fields of a newer version are left out."""
    pending, nodes = data["pending"], data["nodes"]
    return ClusterSnapshot(
        **{
            **_known_fields(ClusterSnapshot, data),
            "warm": tuple(data.get("warm", ())),
            "health": Health(data["health"]),
            "pending": None if pending is None else tuple((shape, count) for shape, count in pending),
            "nodes": None if nodes is None else tuple(Node(**_known_fields(Node, node)) for node in nodes),
            "witness": _witness_from(data.get("witness")),
            "failed_setups": {
                key: FailedSetup(**_known_fields(FailedSetup, failed))
                for key, failed in data.get("failed_setups", {}).items()
            },
        }
    )


def _witness_from(data: Mapping[str, Any] | None) -> Witness | None:
    if data is None:
        return None
    values = _known_fields(Witness, data)
    return Witness(**{**values, "addresses": tuple(values["addresses"])})
