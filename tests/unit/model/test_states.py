"""The state table is total, and everything else follows from it."""

import pytest

from ray_multicluster_scheduler.model.states import FINAL, LIVE, RAY_STATUS, TRANSITIONS, JobState, may_move


def test_every_state_has_its_row_and_a_ray_status() -> None:
    assert set(TRANSITIONS) == set(JobState) == set(RAY_STATUS)


def test_final_states_are_succeeded_failed_and_stopped() -> None:
    assert {JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED} == FINAL


@pytest.mark.parametrize("state", sorted(set(JobState) - FINAL))
def test_every_job_can_end_in_failed_and_stopped(state: JobState) -> None:
    assert may_move(state, JobState.FAILED)
    assert may_move(state, JobState.STOPPED)


def test_every_state_can_be_reached_from_queued() -> None:
    seen, todo = {JobState.QUEUED}, [JobState.QUEUED]
    while todo:
        new = set(TRANSITIONS[todo.pop()]) - seen
        seen |= new
        todo += new
    assert seen == set(JobState)


def test_every_arrow_has_its_sentence() -> None:
    assert all(
        sentence and not sentence.endswith(".") for row in TRANSITIONS.values() for sentence in row.values()
    )


def test_no_state_moves_to_itself() -> None:
    assert not any(state in moves for state, moves in TRANSITIONS.items())


def test_live_states_are_those_between_the_queue_and_the_end() -> None:
    assert set(JobState) - FINAL - {JobState.QUEUED} == LIVE
