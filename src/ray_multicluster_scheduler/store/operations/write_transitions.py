"""Move jobs by compare-and-set, each with its event and its attempt in the same transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, true, update

from ray_multicluster_scheduler.core.lifecycle.apply_transition import Move, apply_transition, holds
from ray_multicluster_scheduler.errors import StaleTransition
from ray_multicluster_scheduler.model.job import Job, Transition
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store.operations.job_events import WRITE_EVENTS
from ray_multicluster_scheduler.store.operations.job_reads import get_changed
from ray_multicluster_scheduler.store.operations.job_retention import end_found_late
from ray_multicluster_scheduler.store.schema.prepared import ForIds, Prepared
from ray_multicluster_scheduler.store.schema.rows import attempt_row, changed_values, move_event_row
from ray_multicluster_scheduler.store.schema.tables import attempts, dependencies, jobs
from ray_multicluster_scheduler.text.storable import storable

_MOVE_JOB = Prepared(
    update(jobs).where(
        jobs.c.submission_id == bindparam("of_job"),
        jobs.c.state == bindparam("from_state"),
        jobs.c.attempt == bindparam("from_attempt"),
    )
)
_START_ATTEMPT = Prepared(insert(attempts))
_CHANGE_ATTEMPT = Prepared(
    update(attempts).where(
        attempts.c.submission_id == bindparam("of_job"), attempts.c.number == bindparam("of_number")
    )
)
_DELETE_DEPENDENCIES = ForIds(lambda ids: delete(dependencies).where(dependencies.c.submission_id.in_(ids)))
_RELEASE_DEPENDENTS = ForIds(lambda ids: delete(dependencies).where(dependencies.c.needs.in_(ids)))
_FAIL_DEPENDENTS = ForIds(
    lambda ids: update(dependencies).where(dependencies.c.needs.in_(ids)).values(failed=true())
)


def apply(
    tx: Connection, transitions: Sequence[Transition], *, now: float, known: Mapping[str, Job]
) -> tuple[Job, ...]:
    """Make the moves that still hold; return each moved job once, as it is after its last move."""
    transitions = [_storable(transition) for transition in transitions]
    current = get_changed(tx, {transition.submission_id for transition in transitions}, known)
    moves: list[Move] = []
    for transition in transitions:
        job = current.get(transition.submission_id)
        if job is not None and holds(job, transition):
            moves.append(apply_transition(job, transition, now=now))
            current[job.submission_id] = moves[-1].after
    if moves:
        _write_jobs(tx, moves)
        _write_attempts(tx, moves)
        WRITE_EVENTS.run(
            tx, [move_event_row(move.before, move.after, now=now, reason=move.reason) for move in moves]
        )
        _settle_dependencies(tx, [move.after for move in moves if move.after.final])
        ends = [move.after.ended_at or now for move in moves if move.after.final and not move.before.final]
        if (earliest := min(ends, default=now)) < now:
            end_found_late(tx, earliest)
    return tuple({move.after.submission_id: move.after for move in moves}.values())


def _storable(transition: Transition) -> Transition:
    """Replace what no database can keep: a reason may hold whatever a program has written."""
    texts = (transition.reason, *transition.changes.values(), *transition.attempt_changes.values())
    if all(not isinstance(text, str) or storable(text) is text for text in texts):  # nearly always
        return transition
    return replace(
        transition,
        reason=storable(transition.reason),
        changes=_storable_values(transition.changes),
        attempt_changes=_storable_values(transition.attempt_changes),
    )


def _storable_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: storable(value) if isinstance(value, str) else value for name, value in values.items()}


def _write_jobs(tx: Connection, moves: Sequence[Move]) -> None:
    """Write each job once, with the changed columns of all its moves."""
    merged: dict[str, tuple[Job, Job, frozenset[str]]] = {}
    for move in moves:
        job_id = move.before.submission_id
        before, _, changed = merged.get(job_id, (move.before, move.after, frozenset()))
        merged[job_id] = before, move.after, changed | move.changed
    rows = [
        {
            "of_job": job_id,
            "from_state": before.state.value,
            "from_attempt": before.attempt,
            **changed_values(before, after, changed),
        }
        for job_id, (before, after, changed) in merged.items()
    ]
    if _run_by_columns(tx, _MOVE_JOB, rows) != len(rows):
        raise StaleTransition("a job was moved by somebody else while it was locked; nothing was written")


def _write_attempts(tx: Connection, moves: Sequence[Move]) -> None:
    _START_ATTEMPT.run(tx, [attempt_row(move.new_attempt) for move in moves if move.new_attempt])
    changes: dict[tuple[str, int], dict[str, Any]] = {}
    for move in moves:
        if move.attempt_values:
            key = move.after.submission_id, move.after.attempt
            changes.setdefault(key, {}).update(move.attempt_values)
    rows = [{"of_job": job, "of_number": number, **values} for (job, number), values in changes.items()]
    _run_by_columns(tx, _CHANGE_ATTEMPT, rows)


def _run_by_columns(tx: Connection, statement: Prepared, rows: Iterable[dict[str, Any]]) -> int:
    """Run a statement for rows with different columns: once for each set of columns."""
    rows_by_columns: dict[frozenset[str], list[dict[str, Any]]] = {}
    for row in rows:
        rows_by_columns.setdefault(frozenset(row), []).append(row)
    return sum(statement.run(tx, same) for same in rows_by_columns.values())


def _settle_dependencies(tx: Connection, ended: Sequence[Job]) -> None:
    """Release jobs whose dependency succeeded, mark jobs whose dependency failed."""
    _DELETE_DEPENDENCIES.run(tx, [job.submission_id for job in ended if job.spec.depends_on])
    _RELEASE_DEPENDENTS.run(tx, [job.submission_id for job in ended if job.state is JobState.SUCCEEDED])
    _FAIL_DEPENDENTS.run(tx, [job.submission_id for job in ended if job.state is not JobState.SUCCEEDED])
