"""The transitions of a job, one function for each occasion; those after a try to send it are a table.

Each function sets only the fields that are special to its occasion. `apply_transition.py` derives the effects
of the new state (further fields, the end of the attempt) for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from ray_multicluster_scheduler.core.lifecycle.observe import Conclusion
from ray_multicluster_scheduler.core.lifecycle.retry import RetryDecision, RetryRules
from ray_multicluster_scheduler.core.lifecycle.stopping import Presence, StopAction, stop_step
from ray_multicluster_scheduler.model.execution import FailureKind, StartRequest
from ray_multicluster_scheduler.model.job import Job, Target, Transition
from ray_multicluster_scheduler.model.states import JobState

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
