"""What one look at a cluster means for an attempt: no evidence, no conclusion."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW, a_job, a_spec

from ray_multicluster_scheduler.core.lifecycle.observe import (
    Act,
    AttemptTimes,
    Conclusion,
    Observation,
    attempt_times,
    interpret,
    still_runs,
)
from ray_multicluster_scheduler.core.lifecycle.stopping import timed_out
from ray_multicluster_scheduler.core.rules import ObserveRules
from ray_multicluster_scheduler.model.execution import AttemptStatus, FailureKind, Sighting
from ray_multicluster_scheduler.model.job import Job, Target
from ray_multicluster_scheduler.model.states import FINAL, LIVE, JobState, may_move

RULES = ObserveRules(unreachable_after_s=20, lost_after_refused_s=90, stop_grace_s=30)


def a_running(**changes: Any) -> Job:
    """A job that runs on cluster 'a' since a minute."""
    fields: dict[str, Any] = {
        "state": JobState.RUNNING,
        "attempt": 1,
        "cluster": "a",
        "remote_id": "job-1",
        "session_name": "session_1",
        "placed_at": NOW - 60,
        "seen_at": NOW - 60,
        "started_at": NOW - 60,
    }
    return a_job(**{**fields, **changes})


def a_placed(**changes: Any) -> Job:
    """A job that was chosen for cluster 'a' and may or may not have been sent."""
    return a_running(**{"state": JobState.PLACED, "seen_at": None, "started_at": None, **changes})


def a_sighting(
    status: AttemptStatus = AttemptStatus.RUNNING,
    *,
    failure: FailureKind = FailureKind.SUPERVISOR,
    **changes: Any,
) -> Sighting:
    """An attempt on node-1; `failure` is why, where its status is FAILED."""
    return Sighting(
        **{
            "remote_id": "job-1",
            "status": status,
            "failure": failure if status is AttemptStatus.FAILED else None,
            "node_id": "node-1",
            **changes,
        }
    )


def concluded(job: Job, **observation: Any) -> Conclusion:
    return interpret(
        job,
        Observation(**{"answered": True, "session_name": "session_1", **observation}),
        rules=RULES,
        now=NOW,
    )


def silent(seconds: float, **observation: Any) -> dict[str, Any]:
    return {"answered": False, "silent_s": seconds, "silence": "no answer within 10 s", **observation}


def test_a_short_silence_means_nothing() -> None:
    assert concluded(a_running(), **silent(19)).act is Act.KEEP


def test_a_dark_cluster_is_not_a_dead_job() -> None:
    conclusion = concluded(a_running(), **silent(3600))
    assert (conclusion.act, conclusion.state) == (Act.MOVE, JobState.UNREACHABLE)
    assert "not started elsewhere without evidence" in conclusion.reason


def test_an_unreachable_job_that_may_wait_stays_for_ever() -> None:
    assert concluded(a_running(state=JobState.UNREACHABLE), **silent(10**6)).act is Act.KEEP


def test_an_unreachable_job_fails_where_the_user_said_so() -> None:
    conclusion = concluded(a_running(spec=a_spec(on_unreachable="fail")), **silent(21))
    assert conclusion.state is JobState.FAILED
    assert "may still be running" in conclusion.reason


@pytest.mark.parametrize(("seconds", "act"), [(299, Act.MOVE), (301, Act.REPLACE)])
def test_a_job_is_started_elsewhere_only_after_the_time_the_user_gave(seconds: float, act: Act) -> None:
    conclusion = concluded(a_running(spec=a_spec(on_unreachable=300.0)), **silent(seconds))
    assert conclusion.act is act
    assert ("overlap" in conclusion.reason) == (act is Act.REPLACE)


@pytest.mark.parametrize(("refused_s", "lost"), [(89, False), (91, True)])
def test_refusing_for_longer_than_a_job_outlives_its_head_is_evidence(refused_s: float, lost: bool) -> None:
    conclusion = concluded(a_running(), **silent(refused_s, refused_s=refused_s, refusal_counts=True))
    assert (conclusion.failure is FailureKind.LOST) == lost


def test_refusing_is_no_evidence_where_the_head_was_not_seen_to_listen_before() -> None:
    conclusion = concluded(a_running(), **silent(3600, refused_s=3600))
    assert (conclusion.act, conclusion.state) == (Act.MOVE, JobState.UNREACHABLE)
    assert "refused connections are none here: `raymc doctor` says why" in conclusion.reason


def test_running_is_not_believed_when_the_drivers_node_is_dead() -> None:
    conclusion = concluded(a_running(), sighting=a_sighting(), dead_nodes=frozenset({"node-1"}))
    assert conclusion.failure is FailureKind.LOST


def test_a_result_is_believed_although_the_node_died_afterwards() -> None:
    done = a_sighting(AttemptStatus.SUCCEEDED)
    assert concluded(a_running(), sighting=done, dead_nodes=frozenset({"node-1"})).state is JobState.SUCCEEDED


def test_a_new_session_without_the_job_is_a_loss_once_confirmed() -> None:
    assert concluded(a_running(), session_name="session_2").act is Act.CONFIRM
    conclusion = concluded(a_running(), session_name="session_2", confirmed=True)
    assert conclusion.failure is FailureKind.LOST
    assert "restarted" in conclusion.reason


def test_a_job_that_never_arrived_is_sent_under_the_same_id() -> None:
    assert concluded(a_placed()).act is Act.SEND


def test_a_placed_job_on_a_restarted_cluster_is_lost_not_resent_blindly() -> None:
    assert concluded(a_placed(), session_name="session_2", confirmed=True).failure is FailureKind.LOST


def test_a_record_that_vanished_is_never_taken_for_a_job_that_never_ran() -> None:
    assert concluded(a_running()).act is Act.CONFIRM
    conclusion = concluded(a_running(), confirmed=True)
    assert conclusion.failure is FailureKind.OUTCOME_UNKNOWN


def test_an_unknown_session_is_no_evidence_of_a_restart() -> None:
    assert concluded(a_placed(session_name=None), session_name="session_2").act is Act.SEND
    assert concluded(a_placed(), session_name=None).act is Act.SEND


def test_a_surprising_failure_is_read_twice() -> None:
    died = a_sighting(AttemptStatus.FAILED, failure=FailureKind.SUPERVISOR)
    assert concluded(a_running(), sighting=died).act is Act.CONFIRM
    assert concluded(a_running(), sighting=died, confirmed=True).failure is FailureKind.SUPERVISOR


def test_a_programs_own_exit_is_believed_at_once() -> None:
    failed = a_sighting(
        AttemptStatus.FAILED, failure=FailureKind.USER, error_type="COMMAND_ERROR", exit_code=3
    )
    conclusion = concluded(a_running(), sighting=failed)
    assert (conclusion.failure, conclusion.reason) == (FailureKind.USER, "its program ended with exit code 3")
    assert (conclusion.changes["exit_code"], conclusion.changes["error_type"]) == (3, "COMMAND_ERROR")


def test_a_stop_that_nobody_here_asked_for_is_said_to_be_somebody_elses() -> None:
    conclusion = concluded(a_running(), sighting=a_sighting(AttemptStatus.STOPPED))
    assert (conclusion.state, "somebody else" in conclusion.reason) == (JobState.STOPPED, True)


def test_a_job_that_ran_too_long_has_failed_not_been_stopped() -> None:
    job = a_running(spec=a_spec(timeout_s=30))
    assert concluded(job, sighting=a_sighting(AttemptStatus.STOPPED)).failure is FailureKind.TIMED_OUT


@pytest.mark.parametrize(("stopping_s", "act"), [(None, Act.KEEP), (29, Act.KEEP), (31, Act.MOVE)])
def test_a_job_that_ray_neither_starts_nor_stops_is_let_go(stopping_s: float | None, act: Act) -> None:
    job = a_running(state=JobState.SUBMITTED, target=Target.STOPPED, changed_at=NOW - 3600)
    pending = a_sighting(AttemptStatus.PENDING, node_id=None)
    assert concluded(job, sighting=pending, stopping_s=stopping_s).act is act


def test_a_cluster_that_is_back_tells_how_the_job_is() -> None:
    job = a_running(state=JobState.UNREACHABLE)
    assert concluded(job, sighting=a_sighting()).state is JobState.RUNNING
    assert concluded(job, sighting=a_sighting(AttemptStatus.SUCCEEDED)).state is JobState.SUCCEEDED


def test_a_running_job_that_runs_changes_nothing() -> None:
    assert concluded(a_running(), sighting=a_sighting()).act is Act.KEEP


observations = st.builds(
    Observation,
    answered=st.booleans(),
    sighting=st.none()
    | st.builds(
        a_sighting,
        st.sampled_from(AttemptStatus),
        failure=st.sampled_from(FailureKind),
        exit_code=st.sampled_from([None, 0, 1]),
    ),
    session_name=st.sampled_from([None, "session_1", "session_2"]),
    dead_nodes=st.sampled_from([frozenset(), frozenset({"node-1"})]),
    silent_s=st.floats(0, 1000),
    refused_s=st.floats(0, 1000),
    refusal_counts=st.booleans(),
    confirmed=st.booleans(),
    stopping_s=st.none() | st.floats(0, 1000),
)
jobs = st.builds(
    a_running,
    state=st.sampled_from(sorted(LIVE - {JobState.LOST})),
    target=st.sampled_from(Target),
    seen_at=st.sampled_from([None, NOW - 60]),
    spec=st.builds(a_spec, on_unreachable=st.sampled_from(["wait", "fail", 60.0])),
)


@given(jobs, observations)
def test_every_move_is_one_that_the_table_allows(job: Job, observation: Observation) -> None:
    conclusion = interpret(job, observation, rules=RULES, now=NOW)
    if conclusion.act is Act.MOVE:
        assert conclusion.state is not None
        assert may_move(job.state, conclusion.state)
        assert conclusion.reason


@given(jobs, observations)
def test_without_an_answer_nothing_succeeds_and_nothing_is_lost_but_by_refusal(
    job: Job, observation: Observation
) -> None:
    conclusion = interpret(job, observation, rules=RULES, now=NOW)
    if not observation.answered:
        assert conclusion.state is not JobState.SUCCEEDED
        if conclusion.failure is not None and conclusion.act is not Act.REPLACE:
            assert observation.refused_s >= RULES.lost_after_refused_s
            assert observation.refusal_counts


@given(jobs, observations)
def test_success_is_only_what_ray_called_success(job: Job, observation: Observation) -> None:
    conclusion = interpret(job, observation, rules=RULES, now=NOW)
    if conclusion.state is JobState.SUCCEEDED:
        assert observation.answered
        assert observation.sighting is not None
        assert observation.sighting.status is AttemptStatus.SUCCEEDED


@given(jobs, observations)
def test_a_confirmed_observation_asks_for_no_further_confirmation(job: Job, observation: Observation) -> None:
    conclusion = interpret(job, observation, rules=RULES, now=NOW)
    if observation.confirmed:
        assert conclusion.act is not Act.CONFIRM
    assert (conclusion.state in FINAL) <= (conclusion.act is Act.MOVE)


# -- times

HOUR = 3600.0


def times_of(job: Job, status: AttemptStatus = AttemptStatus.SUCCEEDED, **seen: Any) -> AttemptTimes:
    """Return the times of an attempt that a look finds; `pending_at` and `running_at` are of former looks."""
    former = {name: seen.pop(name) for name in ("pending_at", "running_at") if name in seen}
    observation = Observation(answered=True, **former)
    return attempt_times(job, observation, a_sighting(status, **seen), now=NOW)


def a_sent(**changes: Any) -> Job:
    """A job that was placed 100 s ago, and that its cluster had accepted two seconds later."""
    times = {"placed_at": NOW - 100, "seen_at": NOW - 98, "started_at": None}
    return a_running(**{"state": JobState.SUBMITTED, **times, **changes})


@pytest.mark.parametrize("status", [status for status in AttemptStatus if status.final])
def test_an_attempt_has_run_when_its_cluster_says_however_late_that_is_found(status: AttemptStatus) -> None:
    times = times_of(a_sent(), status, started_at=NOW - 99, ended_at=NOW - 59)
    assert times == AttemptTimes(started_at=NOW - 99, ended_at=NOW - 59)


@pytest.mark.parametrize("wrong_by", [-HOUR, HOUR, -30 * HOUR])
def test_a_wrong_clock_of_a_cluster_changes_no_length_and_puts_no_run_out_of_its_bounds(
    wrong_by: float,
) -> None:
    times = times_of(a_sent(), started_at=NOW - 99 + wrong_by, ended_at=NOW - 59 + wrong_by)
    assert times == AttemptTimes(started_at=NOW - 98, ended_at=NOW - 58)


@pytest.mark.parametrize(("wrong_by", "begin"), [(-HOUR, -100), (HOUR, 0)])
def test_without_an_answer_to_the_submission_a_wrong_time_is_brought_to_the_nearest_bound(
    wrong_by: float, begin: float
) -> None:
    placed = a_sent(state=JobState.PLACED, seen_at=None)
    times = times_of(placed, started_at=NOW - 99 + wrong_by, ended_at=NOW - 59 + wrong_by)
    assert times == AttemptTimes(started_at=NOW + begin, ended_at=min(NOW, NOW + begin + 40))


def test_a_program_began_after_the_last_look_that_found_it_waiting() -> None:
    """Ray's start is that of the submission: its environment may have taken most of the time."""
    times = times_of(a_sent(), started_at=NOW - 99, ended_at=NOW - 1, pending_at=NOW - 5)
    assert times == AttemptTimes(started_at=NOW - 5, ended_at=NOW - 1)


def test_a_program_ended_after_the_last_look_that_found_it_running() -> None:
    running = a_sent(state=JobState.RUNNING, started_at=NOW - 90)
    times = times_of(running, started_at=NOW - 99, ended_at=NOW - 20, running_at=NOW - 2)
    assert times == AttemptTimes(started_at=NOW - 90, ended_at=NOW - 2)


@pytest.mark.parametrize("started_at", [None, NOW - 90])
def test_an_end_that_nobody_reports_is_the_look_that_finds_it(started_at: float | None) -> None:
    times = times_of(a_sent(started_at=started_at))
    assert times == AttemptTimes(started_at=started_at, ended_at=NOW, end_unreported=True)


def test_a_start_that_nobody_reports_is_the_look_that_finds_it_running() -> None:
    assert times_of(a_sent(), AttemptStatus.RUNNING) == AttemptTimes(started_at=NOW)


def test_a_program_that_never_ran_has_no_start() -> None:
    broken = {"node_id": None, "failure": FailureKind.ENVIRONMENT, "started_at": NOW - 99}
    times = times_of(a_sent(), AttemptStatus.FAILED, **broken, ended_at=NOW - 60)
    assert times == AttemptTimes(started_at=None, ended_at=NOW - 60)


def test_a_program_that_was_never_seen_running_and_then_died_with_its_helper_has_run() -> None:
    times = times_of(a_sent(), AttemptStatus.FAILED, started_at=NOW - 99, ended_at=NOW - 60)
    assert times.started_at == NOW - 99


_moments = st.none() | st.floats(NOW - 10 * HOUR, NOW + 10 * HOUR)
_before = st.floats(0, HOUR)


@given(
    status=st.sampled_from(AttemptStatus),
    reported=st.tuples(_moments, _moments),
    ages=st.tuples(_before, _before, _before),
    knows=st.tuples(st.booleans(), st.booleans()),
    former=st.sampled_from([None, "pending_at", "running_at"]),
)
def test_whatever_a_cluster_reports_times_are_possible(
    status: AttemptStatus,
    reported: tuple[float | None, float | None],
    ages: tuple[float, float, float],
    knows: tuple[bool, bool],
    former: str | None,
) -> None:
    """Placed, then seen, then looked at: in this order, and all of it before now."""
    looked, seen, placed = sorted(ages)
    job = a_sent(
        placed_at=NOW - placed,
        seen_at=NOW - seen if knows[0] else None,
        started_at=NOW - looked if knows[1] else None,
    )
    looks = {} if former is None else {former: NOW - looked}
    times = times_of(job, status, started_at=reported[0], ended_at=reported[1], **looks)
    if times.started_at is not None:
        assert NOW - placed <= times.started_at <= NOW
    if status.final:
        assert times.ended_at is not None
        assert (times.started_at or NOW - placed) <= times.ended_at <= NOW
        assert times.ended_at >= NOW - looked or former != "running_at"
        assert times.end_unreported == (reported[1] is None)
        assert times.ended_at == NOW or not times.end_unreported
    else:
        assert times.ended_at is None


@given(st.floats(-10 * HOUR, 10 * HOUR), st.floats(0, 90))
def test_a_job_does_not_time_out_by_the_wrong_clock_of_its_cluster(wrong_by: float, ran_s: float) -> None:
    """It has run for less than its limit, by our clock."""
    seen_at = NOW - ran_s
    job = a_sent(placed_at=seen_at - 2, seen_at=seen_at, spec=a_spec(timeout_s=100.0))
    started = times_of(job, AttemptStatus.RUNNING, started_at=seen_at - 1 + wrong_by).started_at
    assert not timed_out(a_running(spec=job.spec, started_at=started), now=NOW)


def test_a_job_that_somebody_stopped_in_time_has_not_timed_out_because_nobody_looked() -> None:
    job = a_sent(spec=a_spec(timeout_s=30.0))
    stopped = a_sighting(AttemptStatus.STOPPED, started_at=NOW - 99, ended_at=NOW - 89)
    assert concluded(job, sighting=stopped).state is JobState.STOPPED
    late = a_sighting(AttemptStatus.STOPPED, started_at=NOW - 99, ended_at=NOW - 60)
    assert concluded(job, sighting=late).failure is FailureKind.TIMED_OUT


def test_a_job_that_we_stopped_for_its_time_has_timed_out_whatever_the_cluster_says() -> None:
    job = a_sent(state=JobState.RUNNING, started_at=NOW - 31, spec=a_spec(timeout_s=30.0))
    early = a_sighting(AttemptStatus.STOPPED, started_at=NOW - 99, ended_at=NOW - 2)
    assert concluded(job, sighting=early, stopping_s=0.5).failure is FailureKind.TIMED_OUT


@pytest.mark.parametrize("state", sorted(LIVE))
@pytest.mark.parametrize("status", AttemptStatus)
@pytest.mark.parametrize("node_id", [None, "alive", "dead"])
def test_a_job_that_still_runs_is_kept_as_it_is(
    state: JobState, status: AttemptStatus, node_id: str | None
) -> None:
    job = a_job(state=state, cluster="a", attempt=1, remote_id="job-1", started_at=NOW)
    failure = FailureKind.USER if status is AttemptStatus.FAILED else None
    sighting = Sighting(remote_id="job-1", status=status, node_id=node_id, failure=failure)
    dead = frozenset({"dead"})
    if still_runs(job, sighting, dead):
        observation = Observation(answered=True, sighting=sighting, dead_nodes=dead)
        assert interpret(job, observation, rules=RULES, now=NOW).act is Act.KEEP
    else:
        assert (state, status) != (JobState.RUNNING, AttemptStatus.RUNNING) or node_id == "dead"
