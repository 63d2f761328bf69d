"""What a transition does to a job and its attempt, for every move of the state table."""

from typing import Any

import pytest
from tests.builders import NOW, a_job

from ray_multicluster_scheduler.core.lifecycle.apply_transition import Move, apply_transition
from ray_multicluster_scheduler.core.lifecycle.transitions import move
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import FINAL, LIVE, TRANSITIONS, JobState

MOVES = [(old, new) for old, moves in TRANSITIONS.items() for new in moves]
PLACE = ("cluster", "remote_id", "session_name", "placed_at", "seen_at", "started_at")


def a_job_in(state: JobState) -> Job:
    """A job whose fields fit its state: with a place on cluster 'a' unless it waits."""
    if state is JobState.QUEUED:
        return a_job()
    place: dict[str, Any] = {**dict.fromkeys(PLACE, NOW - 60), "cluster": "a", "remote_id": "job-1"}
    return a_job(**{**place, "session_name": "s1", "state": state, "attempt": 1})


def made(old: JobState, new: JobState, **changes: Any) -> Move:
    job = a_job_in(old)
    if new is JobState.PLACED:
        changes["cluster"] = "b"
    return apply_transition(job, move(job, new, "why", **changes), now=NOW)


@pytest.mark.parametrize(("old", "new"), MOVES)
def test_a_job_has_a_place_exactly_when_it_is_not_in_the_queue(old: JobState, new: JobState) -> None:
    after = made(old, new).after
    kept = {name: getattr(after, name) for name in PLACE if getattr(after, name) is not None}
    if new is JobState.QUEUED:
        assert not kept
    elif new is JobState.PLACED:
        assert kept == {"cluster": "b", "remote_id": after.submission_id, "placed_at": NOW}
    elif old is not JobState.QUEUED:
        assert kept.keys() == set(PLACE)


@pytest.mark.parametrize("name", PLACE)
def test_no_transition_gives_a_job_in_the_queue_a_part_of_a_place(name: str) -> None:
    after = made(JobState.RUNNING, JobState.QUEUED, **{name: NOW}).after
    assert getattr(after, name) is None


@pytest.mark.parametrize(("old", "new"), MOVES)
def test_an_attempt_ends_when_its_job_leaves_the_clusters(old: JobState, new: JobState) -> None:
    ended = made(old, new).attempt_values
    if old in LIVE and new not in LIVE:
        assert (ended["ended_at"], ended["reason"]) == (NOW, "why")
        assert ended["outcome"]
    else:
        assert "outcome" not in ended


@pytest.mark.parametrize(("old", "new"), [each for each in MOVES if each[0] in LIVE and each[1] in FINAL])
def test_an_attempt_ends_as_its_job_does_unless_it_was_lost(old: JobState, new: JobState) -> None:
    expected = JobState.LOST if old is JobState.LOST else new
    assert made(old, new).attempt_values["outcome"] == expected.value


@pytest.mark.parametrize(("old", "new"), MOVES)
def test_only_an_ended_job_has_an_end(old: JobState, new: JobState) -> None:
    assert (made(old, new).after.ended_at is not None) == (new in FINAL)
