"""What a transition does to a job and its attempt, for every move of the state table."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.builders import NOW, a_job

from ray_multicluster_scheduler.core.lifecycle.transitions import Move, apply_transition, move
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


@pytest.mark.parametrize(("old", "new"), [each for each in MOVES if each[0] in LIVE and each[1] not in LIVE])
def test_an_end_is_as_the_cluster_says_or_is_marked_as_noticed_now(old: JobState, new: JobState) -> None:
    begin, end = NOW - 40, NOW - 30
    told = made(old, new, started_at=begin, ended_at=end, end_unreported=False)
    times = {name: told.attempt_values[name] for name in ("started_at", "ended_at", "end_unreported")}
    assert times == {"started_at": begin, "ended_at": end, "end_unreported": False}
    noticed = made(old, new)
    assert noticed.attempt_values["ended_at"] == NOW
    assert noticed.attempt_values["end_unreported"] == (old is not JobState.PLACED)
    for after in (told.after, noticed.after):
        assert after.end_unreported == (
            new in FINAL and after is noticed.after and old is not JobState.PLACED
        )


@pytest.mark.parametrize(("old", "new"), MOVES)
def test_a_state_was_entered_when_its_cluster_says(old: JobState, new: JobState) -> None:
    job = replace(a_job_in(old), started_at=None)
    at = {"started_at": NOW - 40}
    if new in FINAL:
        at["ended_at"] = NOW - 30
    changes = {"cluster": "b"} if new is JobState.PLACED else at
    after = apply_transition(job, move(job, new, "why", **changes), now=NOW).after
    expected = {JobState.RUNNING: NOW - 40, **dict.fromkeys(FINAL, NOW - 30)}
    assert after.changed_at == expected.get(new, NOW)


def test_a_job_that_is_back_runs_again_since_now() -> None:
    after = made(JobState.UNREACHABLE, JobState.RUNNING, started_at=NOW - 60).after
    assert (after.started_at, after.changed_at) == (NOW - 60, NOW)


@pytest.mark.parametrize(("old", "new"), MOVES)
def test_only_an_ended_job_has_an_end(old: JobState, new: JobState) -> None:
    assert (made(old, new).after.ended_at is not None) == (new in FINAL)
