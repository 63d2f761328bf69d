"""A change of state that has happened, with how long it took to come to it: what figures are made of."""

from __future__ import annotations

from dataclasses import dataclass

from ray_multicluster_scheduler.model.states import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMove:
    """One job went from one state to another. Notes, which leave the state as it is, are no moves."""

    submission_id: str
    at: float
    #: None: the job was accepted.
    old: JobState | None
    new: JobState
    attempt: int
    cluster: str | None
    accepted_at: float
    #: When the job entered the state that it left here; None for a new job.
    since: float | None
    #: How the attempt ended that was over with this move; None where none was.
    outcome: str | None
