"""How a job is stopped in every state: which module notices the request, and what follows.

A job is stopped on request (its target is STOPPED) or when it runs longer than its `timeout_s`. The action
depends on what is known about its attempt on the cluster:

| `Presence`      | noticed by                                   | asked for | too long | neither |
|-----------------|----------------------------------------------|-----------|----------|---------|
| QUEUED          | `Queue.blocked`, when others have written    | END       | NOTHING  | NOTHING |
| NOT_SENT        | `core/supervisor.py`, before a send          | END       | NOTHING  | NOTHING |
| NOT_RECEIVED    | `core/supervisor.py`, after a look           | END       | NOTHING  | NOTHING |
| UNKNOWN         | nobody, until a look tells more              | NOTHING   | NOTHING  | NOTHING |
| THERE           | `core/supervisor.py`, after a look           | ASK       | ASK      | NOTHING |
| NOT_STARTED     | `observe.py`, in a look                      | END       | END      | END     |
| STOPPED         | `observe.py`, in a look                      | END       | FAIL     | END     |
| GONE            | `transitions.py`, after a failure            | END       | NOTHING  | NOTHING |
| CLUSTER_REMOVED | `core/state.py`, when others have written    | END       | NOTHING  | NOTHING |

Three more cases need no step of their own. A job that is about to be sent is not sent (`engine/send.py`): the
next look finds that the cluster has not received it. An attempt that ends by itself keeps its own end, and a
failed one is not tried again. A silent attempt that `on_unreachable` replaces goes back to the queue, and the
job ends there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from ray_multicluster_scheduler.model.job import Job, Target
from ray_multicluster_scheduler.model.states import JobState

#: A stop request is repeated after this time, in case Ray has lost it.
STOP_AGAIN_S = 5.0


class Presence(str, Enum):
    """The known state of a job's attempt on its cluster."""

    QUEUED = "QUEUED"  # there is no attempt: the job waits in our queue
    NOT_SENT = "NOT_SENT"  # this leader has placed it and has sent nothing
    NOT_RECEIVED = "NOT_RECEIVED"  # the cluster answers that it never had it
    UNKNOWN = "UNKNOWN"  # it may have been sent, or the cluster does not answer
    THERE = "THERE"  # the cluster has it, and it has not ended
    NOT_STARTED = "NOT_STARTED"  # Ray accepted a stop long ago, and still lists it as PENDING
    STOPPED = "STOPPED"  # the cluster says that it was stopped
    GONE = "GONE"  # there is evidence that it was lost
    CLUSTER_REMOVED = "CLUSTER_REMOVED"  # its cluster is no longer configured, so it cannot be observed


class StopAction(str, Enum):
    """The action for a stop."""

    NOTHING = "NOTHING"
    ASK = "ASK"  # ask the cluster to stop the attempt
    END = "END"  # the job ends as STOPPED
    FAIL = "FAIL"  # the attempt has failed with a time-out: the retry policy decides


@dataclass(frozen=True, slots=True, kw_only=True)
class StopStep:
    """The action, and its reason in one sentence."""

    action: StopAction
    reason: str = ""


_NOTHING = StopStep(action=StopAction.NOTHING)
_ASK = StopStep(action=StopAction.ASK)
#: For each presence in which a requested stop ends the job: the text after the stop reason.
_ENDS: Mapping[Presence, str] = {
    Presence.QUEUED: "",
    Presence.NOT_SENT: ", before it was sent",
    Presence.NOT_RECEIVED: "; the cluster never received it",
    Presence.NOT_STARTED: (
        "; Ray has not started it and still lists it as PENDING, so it is stopped there if it ever starts"
    ),
    Presence.STOPPED: "",
    Presence.GONE: ", and gone: {evidence}",
    Presence.CLUSTER_REMOVED: (
        "; cluster {cluster!r} is no longer in clusters.yaml, so it may still be running there"
    ),
}
#: The presence as far as it follows from the state alone.
_BY_STATE: Mapping[JobState, Presence] = {
    JobState.QUEUED: Presence.QUEUED,
    JobState.PLACED: Presence.UNKNOWN,
    JobState.SUBMITTED: Presence.THERE,
    JobState.RUNNING: Presence.THERE,
    JobState.UNREACHABLE: Presence.UNKNOWN,
    JobState.LOST: Presence.GONE,
}


def stop_step(job: Job, presence: Presence, *, too_long: bool = False, evidence: str = "") -> StopStep:
    """Return the step for a stop of an open job. `evidence` says why an attempt counts as gone."""
    asked_for = job.target is Target.STOPPED
    if presence is Presence.THERE:
        return _ASK if asked_for or too_long else _NOTHING
    if presence is Presence.NOT_STARTED or (asked_for and presence in _ENDS):
        ending = _ENDS[presence].format(cluster=job.cluster, evidence=evidence)
        return StopStep(action=StopAction.END, reason=f"{job.stopped_because}{ending}")
    if presence is not Presence.STOPPED:
        return _NOTHING
    if too_long:
        reason = f"it ran longer than its timeout_s of {job.spec.timeout_s:g} s and was stopped"
        return StopStep(action=StopAction.FAIL, reason=reason)
    return StopStep(action=StopAction.END, reason=f"stopped on cluster {job.cluster!r} by somebody else")


def is_unwanted(job: Job, *, now: float) -> bool:
    """Tell whether the cluster should stop the attempt of an open job."""
    step = stop_step(job, _BY_STATE[job.state], too_long=timed_out(job, now=now))
    return step.action is StopAction.ASK


def timed_out(job: Job, *, now: float) -> bool:
    """Tell whether this attempt has run longer than its `timeout_s`."""
    limit = job.spec.timeout_s
    return limit is not None and job.started_at is not None and now - job.started_at > limit


@dataclass(slots=True)
class _Asked:
    last_at: float
    #: When the cluster first accepted the request; None if it has not.
    taken_at: float | None = None


class StopRequests:
    """Stop requests sent to a cluster, by ids of attempts there; repeated in case they got lost."""

    def __init__(self) -> None:
        self._asked: dict[str, _Asked] = {}

    def ask(self, remote_id: str, *, now: float) -> bool:
        """Tell whether to send a request now, and count it as sent."""
        asked = self._asked.setdefault(remote_id, _Asked(last_at=float("-inf")))
        if now - asked.last_at < STOP_AGAIN_S:
            return False
        asked.last_at = now
        return True

    def taken(self, remote_id: str, *, now: float) -> None:
        """Note that the cluster has accepted a request."""
        asked = self._asked.get(remote_id)
        if asked is not None and asked.taken_at is None:
            asked.taken_at = now

    def stopping_s(self, remote_id: str, *, now: float) -> float | None:
        """Return how long ago the cluster accepted the first request; None if it has not."""
        asked = self._asked.get(remote_id)
        return None if asked is None or asked.taken_at is None else now - asked.taken_at

    def keep_only(self, remote_ids: Collection[str]) -> None:
        """Forget all other attempts: they have ended."""
        self._asked = {name: asked for name, asked in self._asked.items() if name in remote_ids}

    def forget(self, remote_id: str) -> None:
        """Forget an attempt that has ended; an unknown one is ignored."""
        self._asked.pop(remote_id, None)
