"""How long jobs wait and run is counted by the times that their clusters report."""

from typing import Any

from prometheus_client import CollectorRegistry
from tests.support.builders import NOW

from ray_multicluster_scheduler.model.job import PastMove
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.server.metrics import JobMetrics

S = JobState


def a_move(old: JobState, new: JobState, **changes: Any) -> PastMove:
    """A move of the first attempt of a job, noticed an hour after it was accepted."""
    fields: dict[str, Any] = {
        "submission_id": "job-1",
        "at": NOW + 3600,
        "old": old,
        "new": new,
        "attempt": 1,
        "cluster": "a",
        "accepted_at": NOW,
        "since": NOW + 2,
        "outcome": None,
    }
    return PastMove(**{**fields, **changes})


def seconds(move: PastMove, name: str, **labels: str) -> float | None:
    """Return how many seconds were counted with this move; None: nothing was."""
    registry = CollectorRegistry()
    JobMetrics(registry).count([move])
    if not registry.get_sample_value(f"{name}_count", labels):
        return None
    return registry.get_sample_value(f"{name}_sum", labels)


def test_a_run_is_as_long_as_its_cluster_says() -> None:
    for old in (S.SUBMITTED, S.RUNNING, S.UNREACHABLE):
        ran = a_move(old, S.SUCCEEDED, outcome="SUCCEEDED", started_at=NOW + 3, ended_at=NOW + 43)
        assert seconds(ran, "raymc_run_seconds", state="SUCCEEDED") == 40


def test_what_never_ran_is_no_run() -> None:
    failed = a_move(S.SUBMITTED, S.FAILED, outcome="FAILED", ended_at=NOW + 43)
    assert seconds(failed, "raymc_run_seconds", state="FAILED") is None
    stopped = a_move(S.QUEUED, S.STOPPED)
    assert seconds(stopped, "raymc_run_seconds", state="STOPPED") is None


def test_a_start_is_when_the_cluster_says() -> None:
    begun = a_move(S.SUBMITTED, S.RUNNING, started_at=NOW + 5)
    assert seconds(begun, "raymc_dispatch_seconds", step="start") == 3
    assert seconds(begun, "raymc_dispatch_seconds", step="accept_to_run") == 5
    again = a_move(S.UNREACHABLE, S.RUNNING, started_at=NOW + 5)
    assert seconds(again, "raymc_dispatch_seconds", step="accept_to_run") is None
