"""The transitions after trying to start an attempt on a cluster.

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

A job that stays is changed by the next look at its cluster: only a look shows whether an earlier try arrived.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ray_multicluster_scheduler.core.lifecycle.retry import RetryRules
from ray_multicluster_scheduler.core.lifecycle.transitions import back_to_queue, move
from ray_multicluster_scheduler.model.job import Job, Transition
from ray_multicluster_scheduler.model.states import JobState

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
    """Return the transition that follows; None if the job stays until the next look at its cluster."""
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
