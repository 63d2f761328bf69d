"""When an attempt was on its cluster: a bar of a timeline."""

from __future__ import annotations

from dataclasses import dataclass

from ray_multicluster_scheduler.model.resources import Resources
from ray_multicluster_scheduler.model.states import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSpan:
    """One attempt, with what a timeline shows of its job."""

    submission_id: str
    name: str | None
    user: str
    group: str | None
    cluster: str
    attempt: int
    placed_at: float
    started_at: float | None
    ended_at: float | None
    #: `ended_at` is when the end was noticed here: the cluster has not reported it.
    end_unreported: bool
    #: How the attempt ended; None while it lives.
    outcome: str | None
    #: The state of the job now.
    state: JobState
    claim: Resources
