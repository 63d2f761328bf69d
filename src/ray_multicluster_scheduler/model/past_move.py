"""A past change of state with its times, from which metrics and traces are computed."""

from __future__ import annotations

from dataclasses import dataclass

from ray_multicluster_scheduler.model.states import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMove:
    """One job changed its state. Notes, which leave the state unchanged, do not count."""

    submission_id: str
    at: float
    #: None if the job was just accepted.
    old: JobState | None
    new: JobState
    attempt: int
    cluster: str | None
    accepted_at: float
    #: When the job entered its old state; None for a new job.
    since: float | None
    #: The outcome of the attempt that ended with this change; None if no attempt ended.
    outcome: str | None
    #: When the attempt began and ended on its cluster, which may be long before that was noticed (`at`).
    started_at: float | None = None
    ended_at: float | None = None
