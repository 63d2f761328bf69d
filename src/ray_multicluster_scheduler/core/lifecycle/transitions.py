"""The transitions of a job, one function for each occasion; those after a try to send it are a table.

Each function sets only the fields that are special to its occasion. `apply_transition` derives the effects
of the new state (further fields, the end of the attempt) for all of them, and the store writes the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any

from ray_multicluster_scheduler.core.lifecycle.observe import Conclusion
from ray_multicluster_scheduler.core.lifecycle.retry import RetryDecision
from ray_multicluster_scheduler.core.lifecycle.stopping import Presence, StopAction, stop_step
from ray_multicluster_scheduler.core.rules import RetryRules
from ray_multicluster_scheduler.model.execution import FailureKind, StartRequest
from ray_multicluster_scheduler.model.job import Attempt, Job, Target, Transition, remote_id_for
from ray_multicluster_scheduler.model.states import FINAL, LIVE, JobState, may_move

#: Outcomes of attempts that are neither a state nor a kind of failure.
NOT_SENT = "NOT_SENT"
REPLACED = "REPLACED"


def move(job: Job, state: JobState, reason: str, **changes: Any) -> Transition:
    """Return a plain transition from the present state of a job."""
    return Transition(
        submission_id=job.submission_id,
        expected=job.state,
        attempt=job.attempt,
        new=state,
        reason=reason,
        changes=changes,
    )


def placed(
    job: Job,
    request: StartRequest,
    reason: str,
    *,
    cluster: str,
    executor: str,
    session_name: str | None,
    decision: Mapping[str, Any],
) -> Transition:
    """Return the transition of a queued job to a new attempt, written completely before anything is sent."""
    return Transition(
        submission_id=job.submission_id,
        expected=JobState.QUEUED,
        attempt=job.attempt,
        new=JobState.PLACED,
        reason=reason,
        changes={"cluster": cluster, "session_name": session_name},
        attempt_changes={
            "executor": executor,
            "entrypoint": request.entrypoint,
            "runtime_env": request.runtime_env,
            "decision": decision,
        },
    )


def waited_too_long(job: Job) -> str:
    """Say that a job has waited in the queue for longer than it may."""
    return f"waited in the queue longer than its queue_timeout_s of {job.spec.queue_timeout_s:g} s"


def ended_in_queue(job: Job, reason: str) -> Transition:
    """Return the end of a job that can never start. It does not apply to a job that has left the queue."""
    stops = stop_step(job, Presence.QUEUED).action is StopAction.END
    state = JobState.STOPPED if stops else JobState.FAILED
    return replace(move(job, state, reason), expected=JobState.QUEUED)


def stopped(job: Job, presence: Presence, *, evidence: str = "") -> Transition | None:
    """Return the end of a job with a stop request; None if there is none, or if the job cannot end yet."""
    step = stop_step(job, presence, evidence=evidence)
    return move(job, JobState.STOPPED, step.reason) if step.action is StopAction.END else None


def back_to_queue(job: Job, reason: str, *, delay_s: float, now: float) -> Transition:
    """Return the transition of a job that the cluster did not execute: it costs no retry."""
    return _requeue(job, reason, outcome=NOT_SENT, not_before=now + delay_s)


def after_failure(
    job: Job, conclusion: Conclusion, retry: RetryDecision, *, now: float
) -> tuple[Transition, ...]:
    """Return the transitions after a failed attempt: back to the queue, or to the end of the job."""
    assert conclusion.failure is not None
    lost = conclusion.failure is FailureKind.LOST
    reason = f"{conclusion.reason}; {retry.sentence}" if retry.sentence else conclusion.reason
    changes = {**conclusion.changes, **_counters(retry)}
    if lost and (end := stopped(job, Presence.GONE, evidence=conclusion.reason)) is not None:
        return (end,)
    if not retry.again or job.target is Target.STOPPED:
        return (move(job, JobState.FAILED, reason, **changes),)
    changes |= {"not_before": now + retry.delay_s, "avoid": retry.avoid}
    back = _requeue(job, reason, outcome=conclusion.failure.value, **changes)
    if not lost:
        return (back,)
    gone = move(job, JobState.LOST, conclusion.reason)
    return gone, replace(back, expected=JobState.LOST)


def replace_silent(
    job: Job, conclusion: Conclusion, retry: RetryDecision, *, now: float
) -> tuple[Transition, ...]:
    """Return the transitions that start a silent job elsewhere, or to UNREACHABLE if no retry is left."""
    silent = (
        () if job.state is JobState.UNREACHABLE else (move(job, JobState.UNREACHABLE, conclusion.reason),)
    )
    if not retry.again:
        return silent
    changes = {**_counters(retry), "not_before": now + retry.delay_s, "avoid": retry.avoid}
    back = _requeue(job, f"{conclusion.reason}; {retry.sentence}", outcome=REPLACED, **changes)
    return (*silent, replace(back, expected=JobState.UNREACHABLE))


def without_cluster(job: Job) -> Transition | None:
    """Return the transition of a live job whose cluster is no longer configured, so it cannot be observed."""
    end = stopped(job, Presence.CLUSTER_REMOVED)
    if end is not None or job.state is JobState.UNREACHABLE:
        return end
    reason = (
        f"cluster {job.cluster!r} is no longer in clusters.yaml: put it back to have the job watched again, "
        "or stop the job"
    )
    return move(job, JobState.UNREACHABLE, reason)


def _counters(retry: RetryDecision) -> dict[str, Any]:
    return {"infra_failures": retry.infra_failures, "user_failures": retry.user_failures}


def _requeue(job: Job, reason: str, *, outcome: str, **changes: Any) -> Transition:
    return replace(move(job, JobState.QUEUED, reason, **changes), attempt_changes={"outcome": outcome})


#: Delay before a job whose cluster could not be reached is placed again; probes judge the cluster's health.
RETRY_UNSENT_S = 1.0
#: A start that the cluster refused is repeated this often before another cluster is tried.
MAX_REFUSED_SENDS = 3
_DOUBLINGS = 10


class SendResult(str, Enum):
    """The result of trying to start an attempt."""

    ACCEPTED = "ACCEPTED"
    UNKNOWN = "UNKNOWN"
    NOT_WANTED = "NOT_WANTED"
    REFUSED = "REFUSED"
    REFUSED_FOR_GOOD = "REFUSED_FOR_GOOD"
    UNREACHABLE = "UNREACHABLE"
    NOT_PACKED = "NOT_PACKED"
    PACKAGE_LOST = "PACKAGE_LOST"
    ID_TAKEN = "ID_TAKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOutcome:
    """The result, and the reason in words."""

    result: SendResult
    detail: str = ""


def after_send(
    job: Job, outcome: SendOutcome, *, is_new: bool, rules: RetryRules, now: float
) -> Transition | None:
    """Return the transition that follows; None if the job stays until the next look at its cluster.

    | `SendResult`     | what happened                                   | a new attempt | sent before |
    |------------------|-------------------------------------------------|---------------|-------------|
    | ACCEPTED         | the cluster has it                              | SUBMITTED     | SUBMITTED   |
    | UNKNOWN          | no answer, or one that makes no sense           | stays         | stays       |
    | NOT_WANTED       | stopped meanwhile, or another scheduler leads   | stays         | stays       |
    | REFUSED          | the cluster cannot take it now                  | stays         | stays       |
    | REFUSED_FOR_GOOD | the cluster would say the same again            | FAILED        | FAILED      |
    | UNREACHABLE      | nothing was executed this time                  | QUEUED        | stays       |
    | NOT_PACKED       | its packages cannot be read or written here now | QUEUED        | stays       |
    | PACKAGE_LOST     | a package that it needs is gone                 | FAILED        | FAILED      |
    | ID_TAKEN         | another job has this id on the cluster          | QUEUED        | QUEUED      |

    A job that stays is changed by the next look at its cluster: only a look shows whether an earlier try
    arrived.
    """
    result, detail = outcome.result, outcome.detail
    if result is SendResult.ACCEPTED:
        return move(job, JobState.SUBMITTED, detail, seen_at=now)
    if result is SendResult.REFUSED_FOR_GOOD:
        return move(job, JobState.FAILED, f"refused for good: {detail}")
    if result is SendResult.PACKAGE_LOST:
        return move(job, JobState.FAILED, f"cannot be sent: {detail}")
    if result is SendResult.ID_TAKEN:
        return back_to_queue(job, detail, delay_s=0.0, now=now)
    if result is SendResult.UNREACHABLE and is_new:
        return back_to_queue(job, f"not sent: {detail}", delay_s=RETRY_UNSENT_S, now=now)
    if result is SendResult.NOT_PACKED and is_new:
        delay_s = min(rules.max_delay_s, rules.delay_s * 2.0 ** min(job.attempt - 1, _DOUBLINGS))
        return back_to_queue(job, f"not sent: {detail}", delay_s=delay_s, now=now)
    return None


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
    """Derive all effects of a transition that holds on a job, its attempt and its history.

    | a move to | sets on the job                                             | and on its attempt           |
    |-----------|-------------------------------------------------------------|------------------------------|
    | any state | `state`, `changed_at`, `reason`                             | `session_name`, `started_at` |
    | PLACED    | attempt number, `remote_id`, `placed_at`; clears old errors | everything: it is a new one  |
    | QUEUED    | clears all fields of the place on a cluster                 | the end, `outcome`, `reason` |
    | RUNNING   | `started_at`, unless it is known                            |                              |
    | an end    | the end: `ended_at`, `end_unreported`                       | the end, `outcome`, `reason` |
    | the same  | only `reason`, and not on an ended job: it is a note        |                              |

    Fields in `changes` and `attempt_changes` override the derived ones, except that a queued job never has a
    place on a cluster, and no end. Times in `changes` are then those of the attempt that it leaves.
    """
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
