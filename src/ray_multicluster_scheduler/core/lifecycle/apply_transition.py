"""The effects of a transition on a job, its attempt and its history.

`transitions.py` builds transitions and sets only the fields that are special to each. This module derives all
others, and the store writes the result.

| a move to | sets on the job                                              | and on its attempt              |
|-----------|--------------------------------------------------------------|---------------------------------|
| any state | `state`, `changed_at`, `reason`                              | `session_name`, `started_at`    |
| PLACED    | attempt number, `remote_id`, `placed_at`; clears old errors  | everything: it is a new one     |
| QUEUED    | clears all fields of the place on a cluster                  | the end, `outcome`, `reason`    |
| RUNNING   | `started_at`, unless it is known                             |                                 |
| an end    | the end: `ended_at`, `end_unreported`                        | the end, `outcome`, `reason`    |
| the same  | only `reason`, and not on an ended job: it is a note         |                                 |

Fields in `changes` and `attempt_changes` override the derived ones, except that a queued job never has a
place on a cluster, and no end. Times in `changes` are then those of the attempt that it leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ray_multicluster_scheduler.model.job import Attempt, Job, Transition, remote_id_for
from ray_multicluster_scheduler.model.states import FINAL, LIVE, JobState, may_move

#: Fields that a transition may set; everything else is derived from the move or never changes.
JOB_FIELDS = frozenset(field.name for field in fields(Job)) - {
    "seq", "submission_id", "spec", "state", "target", "accepted_at", "changed_at", "reason", "head",
}  # fmt: skip
ATTEMPT_FIELDS = frozenset(field.name for field in fields(Attempt)) - {
    "submission_id", "number", "cluster", "remote_id",
}  # fmt: skip
#: Fields of a job's place on a cluster, and of its end. They are empty for a queued job.
_NO_PLACE: Mapping[str, Any] = {
    **dict.fromkeys(
        ("cluster", "remote_id", "session_name", "placed_at", "seen_at", "started_at", "ended_at")
    ),
    "end_unreported": False,
}
#: Outcome of an attempt whose job returns to the queue, unless the transition sets one.
REQUEUED_OUTCOME: Mapping[JobState, str] = {
    JobState.PLACED: "NOT_STARTED",
    JobState.SUBMITTED: "FAILED",
    JobState.RUNNING: "FAILED",
    JobState.UNREACHABLE: "ABANDONED",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A transition that applies: the job before and after, and everything else that is written with it."""

    before: Job
    after: Job
    #: The fields in which it may differ from the job before.
    changed: frozenset[str]
    #: The reason in its event; the job may keep another one.
    reason: str
    #: The attempt that this move starts.
    new_attempt: Attempt | None = None
    #: Fields of the current attempt that change.
    attempt_values: Mapping[str, Any]


def check(move: Transition) -> None:
    """Raise ValueError for a transition that can only come from a bug."""
    problem = _problem(move)
    if problem is not None:
        raise ValueError(f"{move.submission_id!r}: {move.expected.value} -> {move.new.value}{problem}")


def _problem(move: Transition) -> str | None:
    if move.new is not move.expected and not may_move(move.expected, move.new):
        return " is not in the state table"
    if not (move.changes.keys() <= JOB_FIELDS and move.attempt_changes.keys() <= ATTEMPT_FIELDS):
        unknown = sorted((move.changes.keys() - JOB_FIELDS) | (move.attempt_changes.keys() - ATTEMPT_FIELDS))
        return f": a transition cannot set {', '.join(unknown)}"
    placing = _is_placing(move)
    if placing and not move.changes.get("cluster"):
        return ": changes must name the cluster"
    number = move.attempt + 1 if placing else move.attempt
    if move.changes.get("attempt", number) != number:
        return f": the attempt number is {number}, it cannot be set to another"
    if move.attempt_changes and not placing and move.expected is JobState.QUEUED:
        return ": a queued job has no attempt to change"
    return None


def holds(job: Job, move: Transition) -> bool:
    """Tell whether the job is still where the transition expects it."""
    return job.state is move.expected and job.attempt == move.attempt


def apply_transition(job: Job, move: Transition, *, now: float) -> Move:
    """Derive all effects of a transition that holds."""
    values = _values(job, move, now=now)
    after = replace(job, **values)
    placing = _is_placing(move)
    return Move(
        before=job,
        after=after,
        changed=frozenset(values),
        reason=move.reason,
        new_attempt=_new_attempt(after, move.attempt_changes) if placing else None,
        attempt_values={} if placing else _attempt_values(job, after, move, now=now),
    )


def _is_placing(move: Transition) -> bool:
    return move.new is JobState.PLACED and move.expected is not JobState.PLACED


def _values(job: Job, move: Transition, *, now: float) -> dict[str, Any]:
    """Return the fields of the job that the move sets."""
    if move.new is move.expected:  # a note, which does not overwrite the reason of an ended job
        return {"reason": job.reason if job.final else move.reason, **move.changes}
    derived: dict[str, Any] = {"state": move.new, "changed_at": now, "reason": move.reason}
    if move.new is JobState.PLACED:
        number = job.attempt + 1
        derived |= {
            **_NO_PLACE,
            "attempt": number,
            "remote_id": remote_id_for(job.submission_id, number),
            "placed_at": now,
            "error_type": None,
            "exit_code": None,
        }
    elif move.new is JobState.QUEUED:
        return {**derived, **move.changes, **_NO_PLACE}
    elif move.new is JobState.RUNNING and job.started_at is None:
        derived["started_at"] = derived["changed_at"] = move.changes.get("started_at", now)
    elif move.new in FINAL:
        derived |= _end(job, move, now=now)
        derived["changed_at"] = derived["ended_at"]
    return {**derived, **move.changes}


def _end(job: Job, move: Transition, *, now: float) -> dict[str, Any]:
    """Return when a job and its attempt have ended: as the cluster said, or else now.

    What never reached a cluster has ended when that was decided. Of everything else the end is only noticed.
    """
    started_at = move.changes.get("started_at", job.started_at)
    derived = {
        "ended_at": max(now, started_at or now),  # clocks differ, and may have been set meanwhile
        "end_unreported": job.state in LIVE and job.state is not JobState.PLACED,
    }
    return {name: move.changes.get(name, value) for name, value in derived.items()}


def _new_attempt(job: Job, changes: Mapping[str, Any]) -> Attempt:
    values: dict[str, Any] = {
        "submission_id": job.submission_id,
        "number": job.attempt,
        "cluster": job.cluster,
        "remote_id": job.remote_id,
        "session_name": job.session_name,
        "placed_at": job.placed_at,
        "reason": job.reason,
    }
    return Attempt(**{**values, **changes})


def _attempt_values(before: Job, after: Job, move: Transition, *, now: float) -> dict[str, Any]:
    # Fields that both records have are given once, in `changes`; a job in the queue does not keep them.
    kept = before if after.state is JobState.QUEUED else after
    values = {name: move.changes.get(name, getattr(kept, name)) for name in ("session_name", "started_at")}
    values = {name: value for name, value in values.items() if value != getattr(before, name)}
    if before.state in LIVE and after.state not in LIVE:
        outcome = {"outcome": _outcome(before, after), "reason": move.reason}
        values |= {**_end(before, move, now=now), **outcome}
    return {**values, **move.attempt_changes}


def _outcome(before: Job, after: Job) -> str:
    """Return the outcome of an attempt, derived from the states."""
    if before.state is JobState.LOST:
        return JobState.LOST.value
    return REQUEUED_OUTCOME[before.state] if after.state is JobState.QUEUED else after.state.value
