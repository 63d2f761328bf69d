"""Conclusions about one attempt from one look at its cluster.

The basic rules: an unreachable cluster does not mean a dead job. RUNNING is not believed if the driver's node
is dead. A job that Ray does not know may have run all the same. Reported times are believed as far as our own
looks allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from ray_multicluster_scheduler.core.lifecycle.stopping import Presence, StopAction, stop_step, timed_out
from ray_multicluster_scheduler.core.rules import ObserveRules
from ray_multicluster_scheduler.environment.setup_failure import SETTING_UP, setup_summary
from ray_multicluster_scheduler.model.execution import AttemptStatus, FailureKind, Sighting
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The observation of one attempt in one look."""

    #: Whether the cluster answered. If so, `sighting` None means that it has no attempt of ours with this id.
    answered: bool
    sighting: Sighting | None = None
    #: The cluster's Ray session, read in the same look.
    session_name: str | None = None
    dead_nodes: frozenset[str] = frozenset()
    #: How long the cluster has not answered, and why.
    silent_s: float = 0.0
    silence: str = ""
    #: How long dashboard and head address have both refused connections without interruption.
    refused_s: float = 0.0
    #: Both were open before, in the head's session of this attempt: only then is their refusal evidence.
    refusal_counts: bool = False
    #: A second read of this id had the same result.
    confirmed: bool = False
    #: When the last look that found it open asked its cluster, if that look found it PENDING, or RUNNING.
    pending_at: float | None = None
    running_at: float | None = None
    #: How long ago Ray was first asked to stop it; None if it was not.
    stopping_s: float | None = None


class Act(str, Enum):
    """The action for the attempt."""

    KEEP = "KEEP"  # no change
    MOVE = "MOVE"  # write the new state
    FAIL = "FAIL"  # the attempt failed: the retry policy decides
    CONFIRM = "CONFIRM"  # read this id once more before believing it
    SEND = "SEND"  # it never arrived: send it, under the same id
    REPLACE = "REPLACE"  # no answer for too long: the user wants it started elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """The action, and its reason in one sentence."""

    act: Act
    state: JobState | None = None
    reason: str = ""
    failure: FailureKind | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptTimes:
    """When an attempt ran, by our clock."""

    #: None: its program has not begun, or nobody knows when.
    started_at: float | None
    #: None while it has not ended.
    ended_at: float | None = None
    #: Its cluster has not reported the end: `ended_at` is the time of this look.
    end_unreported: bool = False

    @property
    def changes(self) -> dict[str, Any]:
        """The fields of the job to set."""
        started = {} if self.started_at is None else {"started_at": self.started_at}
        if self.ended_at is None:
            return started
        return {**started, "ended_at": self.ended_at, "end_unreported": self.end_unreported}


NOTHING_NEW = Conclusion(act=Act.KEEP)
#: Connections are refused by a port that was closed before, or by a tunnel that has ended.
NO_WITNESS = " (refused connections are none here: `raymc doctor` says why, and how to change it)"
#: A message may contain a whole traceback; the log is stored separately.
MAX_REASON = 2000


def interpret(job: Job, observation: Observation, *, rules: ObserveRules, now: float) -> Conclusion:
    """Return the conclusion from an observation of a live attempt."""
    if not observation.answered:
        return _silent(job, observation, rules=rules)
    if observation.sighting is None:
        return _missing(job, observation)
    return _found(job, observation, observation.sighting, rules=rules, now=now)


def _silent(job: Job, observation: Observation, *, rules: ObserveRules) -> Conclusion:
    if observation.refusal_counts and observation.refused_s >= rules.lost_after_refused_s:
        return _lost(
            f"cluster {job.cluster!r} is down: its dashboard and its head address have both refused "
            f"connections for {observation.refused_s:.0f} s "
            f"(lost_after_refused_s: {rules.lost_after_refused_s:g})"
        )
    if observation.silent_s < rules.unreachable_after_s:
        return NOTHING_NEW
    no_word = f"no word from cluster {job.cluster!r} for {observation.silent_s:.0f} s"
    if job.spec.on_unreachable == "fail":
        return Conclusion(
            act=Act.MOVE,
            state=JobState.FAILED,
            reason=f"{no_word} ({observation.silence}) and "
            "on_unreachable is 'fail'; the attempt may still be running there",
        )
    if not isinstance(job.spec.on_unreachable, str) and observation.silent_s >= job.spec.on_unreachable:
        return Conclusion(
            act=Act.REPLACE,
            failure=FailureKind.SILENT,
            reason=f"{no_word} and on_unreachable "
            f"allows another start after {job.spec.on_unreachable:g} s: attempt {job.attempt} may still be "
            "running there, so the two may overlap",
        )
    if job.state is JobState.UNREACHABLE:
        return NOTHING_NEW
    return Conclusion(
        act=Act.MOVE,
        state=JobState.UNREACHABLE,
        reason=f"{no_word} ({observation.silence}); "
        "the job may well be running, so it is not started elsewhere without evidence"
        + ("" if observation.refusal_counts or not observation.refused_s else NO_WITNESS),
    )


def _missing(job: Job, observation: Observation) -> Conclusion:
    restarted = (
        None not in (job.session_name, observation.session_name)
        and job.session_name != observation.session_name
    )
    if not observation.confirmed and (restarted or job.seen_at is not None):
        return Conclusion(act=Act.CONFIRM)
    if restarted:
        return _lost(f"the head of cluster {job.cluster!r} was restarted (new session) and its jobs are gone")
    if job.seen_at is None:
        return Conclusion(act=Act.SEND, reason=f"cluster {job.cluster!r} never received it")
    return Conclusion(
        act=Act.FAIL,
        failure=FailureKind.OUTCOME_UNKNOWN,
        reason=f"cluster {job.cluster!r} no longer knows it: somebody deleted its record after it had ended, "
        "before its result was read",
    )


def _found(
    job: Job, observation: Observation, sighting: Sighting, *, rules: ObserveRules, now: float
) -> Conclusion:
    if not sighting.status.final and sighting.node_id in observation.dead_nodes:
        return _lost(
            f"it is told to be {sighting.status.value}, "
            f"but the node of its driver on cluster {job.cluster!r} is dead"
        )
    if sighting.status is AttemptStatus.PENDING:
        return _pending(job, observation, rules=rules, now=now)
    if sighting.status is AttemptStatus.RUNNING:
        return _running(job, observation, sighting, now=now)
    if sighting.status is AttemptStatus.SUCCEEDED:
        return _ended(job, observation, JobState.SUCCEEDED, sighting.good_end, sighting, now=now)
    if sighting.status is AttemptStatus.STOPPED:
        return _stopped(job, observation, sighting, now=now)
    return _failed(job, observation, sighting, now=now)


def _pending(job: Job, observation: Observation, *, rules: ObserveRules, now: float) -> Conclusion:
    if observation.stopping_s is not None and observation.stopping_s > rules.stop_grace_s:
        reason = stop_step(job, Presence.NOT_STARTED).reason
        return Conclusion(act=Act.MOVE, state=JobState.STOPPED, reason=reason)
    if job.state in {JobState.PLACED, JobState.UNREACHABLE}:
        what = setup_summary(job.spec.runtime_env)
        setting_up = f"; it is {SETTING_UP} ({what})" if what else ""
        reason = f"cluster {job.cluster!r} has it and has not started it yet{setting_up}"
        return Conclusion(
            act=Act.MOVE, state=JobState.SUBMITTED, reason=reason, changes=_seen(job, observation, now=now)
        )
    return NOTHING_NEW


def still_runs(job: Job, sighting: Sighting, dead_nodes: Set[str]) -> bool:
    """Tell whether a look found a running job as it was: most looks find most jobs so, and are soon done."""
    is_known = job.state is JobState.RUNNING and sighting.status is AttemptStatus.RUNNING
    return is_known and sighting.node_id not in dead_nodes


def attempt_times(job: Job, observation: Observation, sighting: Sighting, *, now: float) -> AttemptTimes:
    """Return when an attempt ran: as its cluster reports, and never outside of what our own looks allow.

    Ray reports when it accepted the submission, not when the program began. The program has begun after the
    last look that found it PENDING, and has ended after the last one that found it RUNNING.
    """
    reported = sighting.started_at
    accepted_at = None if reported is None else _accepted_at(job, reported, now=now)
    started_at = job.started_at
    if started_at is None and _has_run(sighting):
        if accepted_at is not None:
            started_at = min(max(accepted_at, observation.pending_at or accepted_at), now)
        elif sighting.status is AttemptStatus.RUNNING:
            started_at = now
    if not sighting.status.final:
        return AttemptTimes(started_at=started_at)
    known = (job.placed_at, accepted_at, started_at, observation.running_at)
    earliest = max((at for at in known if at is not None), default=now)
    ended_at = sighting.ended_at
    if ended_at is None:
        return AttemptTimes(started_at=started_at, ended_at=max(earliest, now), end_unreported=True)
    if reported is not None and accepted_at is not None:
        ended_at += accepted_at - reported  # a clock that is wrong at the start is as wrong at the end
    return AttemptTimes(started_at=started_at, ended_at=max(earliest, min(ended_at, now)))


def _accepted_at(job: Job, reported: float, *, now: float) -> float:
    """Return when a cluster accepted an attempt: not before it was placed, nor after it was first seen there.

    A report out of these bounds comes from a wrong clock. Ours says then when the cluster had it.
    """
    earliest = job.accepted_at if job.placed_at is None else job.placed_at
    latest = now if job.seen_at is None else job.seen_at
    if job.seen_at is not None and not earliest <= reported <= latest:
        return latest
    return min(max(reported, earliest), latest)


def _has_run(sighting: Sighting) -> bool:
    """Tell whether the program of an attempt has begun: until then Ray names no node for its driver."""
    runs = sighting.status in {AttemptStatus.RUNNING, AttemptStatus.SUCCEEDED}
    return runs or sighting.node_id is not None or sighting.exit_code is not None


def _running(job: Job, observation: Observation, sighting: Sighting, *, now: float) -> Conclusion:
    if job.state is JobState.RUNNING:
        return NOTHING_NEW
    back = job.state is JobState.UNREACHABLE
    reason = (
        "the cluster is back and it still runs" if back else f"its driver runs on cluster {job.cluster!r}"
    )
    times = attempt_times(job, observation, sighting, now=now)
    return Conclusion(
        act=Act.MOVE,
        state=JobState.RUNNING,
        reason=reason,
        changes={**_seen(job, observation, now=now), **times.changes},
    )


def _stopped(job: Job, observation: Observation, sighting: Sighting, *, now: float) -> Conclusion:
    times = attempt_times(job, observation, sighting, now=now)
    # What we have stopped ran until then, whatever the clock of its cluster says.
    until = now if observation.stopping_s is not None or times.ended_at is None else times.ended_at
    ran = replace(job, started_at=times.started_at)
    step = stop_step(job, Presence.STOPPED, too_long=timed_out(ran, now=until))
    if step.action is StopAction.FAIL:
        return Conclusion(
            act=Act.FAIL, failure=FailureKind.TIMED_OUT, reason=step.reason, changes=times.changes
        )
    return _ended(job, observation, JobState.STOPPED, step.reason, sighting, now=now)


def _failed(job: Job, observation: Observation, sighting: Sighting, *, now: float) -> Conclusion:
    kind = sighting.failure
    assert kind is not None
    if kind is not FailureKind.USER and not observation.confirmed:
        return Conclusion(act=Act.CONFIRM)
    return Conclusion(
        act=Act.FAIL,
        failure=kind,
        reason=_failure_reason(sighting, kind),
        changes={
            "error_type": sighting.error_type,
            "exit_code": sighting.exit_code,
            **attempt_times(job, observation, sighting, now=now).changes,
        },
    )


def _failure_reason(sighting: Sighting, kind: FailureKind) -> str:
    if sighting.exit_code is not None:
        return f"its program ended with exit code {sighting.exit_code}"
    message = sighting.message.strip()
    if kind in {FailureKind.ENVIRONMENT, FailureKind.NO_ENVIRONMENT}:
        return f"its environment could not be set up: {message}"
    if len(message) > MAX_REASON:  # the end of a traceback names the error
        message = f"{message[: MAX_REASON // 4]} … {message[-MAX_REASON * 3 // 4 :]}"
    return message or "its cluster calls it FAILED without saying why"


def _ended(
    job: Job, observation: Observation, state: JobState, reason: str, sighting: Sighting, *, now: float
) -> Conclusion:
    times = attempt_times(job, observation, sighting, now=now)
    changes = {**_seen(job, observation, now=now), "exit_code": sighting.exit_code, **times.changes}
    return Conclusion(act=Act.MOVE, state=state, reason=reason, changes=changes)


def _seen(job: Job, observation: Observation, *, now: float) -> dict[str, Any]:
    return {"seen_at": job.seen_at or now, "session_name": observation.session_name or job.session_name}


def _lost(reason: str) -> Conclusion:
    return Conclusion(act=Act.FAIL, failure=FailureKind.LOST, reason=reason)
