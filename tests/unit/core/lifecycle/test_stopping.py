"""How a job is stopped, wherever it is: the table of `stopping.py`, row by row."""

import pytest
from tests.support.builders import NOW, a_job, a_spec

from ray_multicluster_scheduler.core.lifecycle import stopping
from ray_multicluster_scheduler.core.lifecycle.stopping import (
    STOP_AGAIN_S,
    Presence,
    StopAction,
    StopRequests,
    is_unwanted,
    stop_step,
    timed_out,
)
from ray_multicluster_scheduler.model.job import Job, Target
from ray_multicluster_scheduler.model.states import FINAL, JobState

#: The table of the docstring: presence, who notices, asked for, too long, neither.
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (stopping.__doc__ or "").splitlines()
    if line.startswith("| ") and "`Presence`" not in line
]


def an_open_job(target: Target = Target.STOPPED, **changes: object) -> Job:
    """A job on cluster 'a' that may run for 10 s, and that somebody wants stopped."""
    return a_job(**{"target": target, "attempt": 1, "cluster": "a", "spec": a_spec(timeout_s=10), **changes})


def test_the_table_has_a_row_for_each_presence() -> None:
    assert [row[0] for row in ROWS] == [each.value for each in Presence]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_function_does_what_the_table_says(row: list[str]) -> None:
    presence, _, asked_for, too_long, neither = row
    goes_on = an_open_job(Target.FINISHED)
    steps = (
        stop_step(an_open_job(), Presence(presence)),
        stop_step(goes_on, Presence(presence), too_long=True),
        stop_step(goes_on, Presence(presence)),
    )
    assert [step.action.value for step in steps] == [asked_for, too_long, neither]


@pytest.mark.parametrize("presence", Presence)
def test_what_somebody_asks_for_goes_before_a_time_out(presence: Presence) -> None:
    job = an_open_job()
    assert stop_step(job, presence, too_long=True) == stop_step(job, presence)


@pytest.mark.parametrize(
    ("presence", "reason"),
    [
        (Presence.QUEUED, "stopped by ann"),
        (Presence.NOT_SENT, "stopped by ann, before it was sent"),
        (Presence.NOT_RECEIVED, "stopped by ann; the cluster never received it"),
        (
            Presence.NOT_STARTED,
            "stopped by ann; Ray has not started it and still lists it as PENDING, so it is stopped there if "
            "it ever starts",
        ),
        (Presence.STOPPED, "stopped by ann"),
        (Presence.GONE, "stopped by ann, and gone: {the head} was restarted"),
        (
            Presence.CLUSTER_REMOVED,
            "stopped by ann; cluster 'a' is no longer in clusters.yaml, so it may still be running there",
        ),
    ],
)
def test_a_stopped_job_says_by_whom_and_where_that_found_it(presence: Presence, reason: str) -> None:
    job = an_open_job(stop_reason="stopped by ann")
    assert stop_step(job, presence, evidence="{the head} was restarted").reason == reason


def test_a_stop_that_nobody_here_asked_for_is_somebody_elses_or_a_time_out() -> None:
    job = an_open_job(Target.FINISHED)
    assert stop_step(job, Presence.STOPPED).reason == "stopped on cluster 'a' by somebody else"
    assert "timeout_s of 10 s" in stop_step(job, Presence.STOPPED, too_long=True).reason


@pytest.mark.parametrize("state", sorted(set(JobState) - FINAL))
@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("ran_s", [None, 5, 11])
def test_a_cluster_is_asked_to_stop_what_it_has_and_nobody_wants(
    state: JobState, target: Target, ran_s: float | None
) -> None:
    started_at = None if ran_s is None else NOW - ran_s
    job = an_open_job(target, state=state, started_at=started_at)
    unwanted = target is Target.STOPPED or ran_s == 11
    there = state in {JobState.SUBMITTED, JobState.RUNNING}
    assert is_unwanted(job, now=NOW) == (unwanted and there)


def test_only_a_program_that_has_started_and_has_a_limit_runs_too_long() -> None:
    assert timed_out(an_open_job(started_at=NOW - 11), now=NOW)
    assert not timed_out(an_open_job(started_at=NOW - 10), now=NOW)
    assert not timed_out(an_open_job(), now=NOW)
    assert not timed_out(an_open_job(started_at=NOW - 11, spec=a_spec()), now=NOW)


def test_a_cluster_is_asked_again_but_not_at_every_look() -> None:
    stops = StopRequests()
    assert stops.ask("sub-1", now=NOW)
    assert not stops.ask("sub-1", now=NOW + STOP_AGAIN_S - 0.1)
    assert stops.ask("sub-2", now=NOW + STOP_AGAIN_S - 0.1)
    assert stops.ask("sub-1", now=NOW + STOP_AGAIN_S)


def test_how_long_a_cluster_has_been_stopping_counts_from_the_first_request_that_it_took() -> None:
    stops = StopRequests()
    stops.ask("sub-1", now=NOW)
    assert stops.stopping_s("sub-1", now=NOW + 1) is None
    stops.taken("sub-1", now=NOW + 1)
    stops.taken("sub-1", now=NOW + 3)
    assert stops.stopping_s("sub-1", now=NOW + 4) == 3
    stops.keep_only(["sub-2"])
    assert stops.stopping_s("sub-1", now=NOW + 4) is None


def test_a_step_has_a_reason_exactly_when_it_is_written_down() -> None:
    for presence in Presence:
        step = stop_step(an_open_job(), presence)
        assert bool(step.reason) == (step.action in {StopAction.END, StopAction.FAIL})
