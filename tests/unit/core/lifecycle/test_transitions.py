"""The transitions of each occasion: they follow the state table, and what is written fits the occasion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW, a_job

from ray_multicluster_scheduler.core.lifecycle.observe import Act, Conclusion
from ray_multicluster_scheduler.core.lifecycle.retry import decide_retry
from ray_multicluster_scheduler.core.lifecycle.transitions import (
    after_failure,
    apply_transition,
    back_to_queue,
    check,
    ended_in_queue,
    holds,
    placed,
    replace_silent,
    without_cluster,
)
from ray_multicluster_scheduler.core.rules import RetryRules
from ray_multicluster_scheduler.model.execution import FailureKind, StartRequest
from ray_multicluster_scheduler.model.job import Job, Target, Transition
from ray_multicluster_scheduler.model.states import JobState, may_move

RULES = RetryRules(max_infra_retries=3, delay_s=2, max_delay_s=60)


def a_failed_attempt(**changes: object) -> Job:
    return a_job(**{"state": JobState.RUNNING, "attempt": 1, "cluster": "a", "remote_id": "job-1", **changes})


def after(job: Job, *moves: Transition) -> Job:
    """Return the job as it is after these moves."""
    for each in moves:
        check(each)
        assert holds(job, each)
        job = apply_transition(job, each, now=NOW).after
    return job


def outcome(job: Job, *moves: Transition) -> object:
    """Return the outcome that these moves write down for the attempt."""
    *before, last = moves
    return apply_transition(after(job, *before), last, now=NOW).attempt_values.get("outcome")


@given(
    st.sampled_from([JobState.PLACED, JobState.SUBMITTED, JobState.RUNNING, JobState.UNREACHABLE]),
    st.sampled_from(FailureKind),
    st.integers(0, 4),
    st.sampled_from(Target),
)
def test_the_moves_after_a_failure_follow_the_table(
    state: JobState, kind: FailureKind, failures: int, target: Target
) -> None:
    job = a_failed_attempt(state=state, infra_failures=failures, target=target)
    retry = decide_retry(job, kind, rules=RULES, jitter=0)
    moves = after_failure(job, Conclusion(act=Act.FAIL, failure=kind, reason="why"), retry, now=NOW)
    at = state
    for each in moves:
        assert each.expected is at
        assert may_move(at, each.new)
        at = each.new
    assert at is not JobState.LOST
    if target is Target.STOPPED:
        assert at is not JobState.QUEUED


def test_a_lost_job_goes_through_lost_back_to_the_queue() -> None:
    job = a_failed_attempt()
    retry = decide_retry(job, FailureKind.LOST, rules=RULES, jitter=1)
    conclusion = Conclusion(act=Act.FAIL, failure=FailureKind.LOST, reason="the head was restarted")
    lost, queued = after_failure(job, conclusion, retry, now=NOW)
    assert (lost.new, queued.new) == (JobState.LOST, JobState.QUEUED)
    waiting = after(job, lost, queued)
    assert waiting.cluster is None
    assert waiting.not_before == NOW + retry.delay_s
    assert "the head was restarted" in waiting.reason


@pytest.mark.parametrize(
    ("state", "failures", "moves"),
    [
        (JobState.RUNNING, 0, [JobState.UNREACHABLE, JobState.QUEUED]),
        (JobState.UNREACHABLE, 0, [JobState.QUEUED]),
        (JobState.RUNNING, 3, [JobState.UNREACHABLE]),
        (JobState.UNREACHABLE, 3, []),
    ],
)
def test_a_silent_job_is_replaced_only_while_it_has_retries(
    state: JobState, failures: int, moves: list[JobState]
) -> None:
    job = a_failed_attempt(state=state, infra_failures=failures)
    retry = decide_retry(job, FailureKind.SILENT, rules=RULES, jitter=0)
    made = replace_silent(job, Conclusion(act=Act.REPLACE, reason="silent"), retry, now=NOW)
    assert [each.new for each in made] == moves


@pytest.mark.parametrize(
    ("state", "target", "new"),
    [
        (JobState.RUNNING, Target.FINISHED, JobState.UNREACHABLE),
        (JobState.UNREACHABLE, Target.FINISHED, None),
        (JobState.UNREACHABLE, Target.STOPPED, JobState.STOPPED),
    ],
)
def test_a_job_whose_cluster_was_taken_out_of_the_configuration_can_only_be_stopped(
    state: JobState, target: Target, new: JobState | None
) -> None:
    moved = without_cluster(a_failed_attempt(state=state, target=target))
    assert (moved and moved.new) is new
    assert moved is None or "clusters.yaml" in moved.reason


def test_a_job_that_was_not_sent_keeps_its_retries() -> None:
    move = back_to_queue(a_failed_attempt(state=JobState.PLACED), "not sent", delay_s=1, now=NOW)
    assert not {"infra_failures", "user_failures"} & move.changes.keys()


@pytest.mark.parametrize(
    ("kind", "outcomes"),
    [(FailureKind.LOST, ("LOST", "FAILED")), (FailureKind.SUPERVISOR, ("SUPERVISOR", "FAILED"))],
)
def test_an_attempt_that_is_retried_keeps_why_it_failed_and_the_last_one_failed(
    kind: FailureKind, outcomes: tuple[str, str]
) -> None:
    conclusion = Conclusion(act=Act.FAIL, failure=kind, reason="why")
    jobs = [a_failed_attempt(infra_failures=failures) for failures in (0, 3)]
    retries = [decide_retry(job, kind, rules=RULES, jitter=0) for job in jobs]
    moves = [after_failure(job, conclusion, retry, now=NOW) for job, retry in zip(jobs, retries, strict=True)]
    assert tuple(outcome(job, *made) for job, made in zip(jobs, moves, strict=True)) == outcomes


def test_attempts_that_were_not_sent_or_were_replaced_are_told_apart() -> None:
    unsent = a_failed_attempt(state=JobState.PLACED)
    silent = a_failed_attempt(state=JobState.UNREACHABLE)
    retry = decide_retry(silent, FailureKind.SILENT, rules=RULES, jitter=0)
    replaced = replace_silent(silent, Conclusion(act=Act.REPLACE, reason="silent"), retry, now=NOW)
    assert outcome(unsent, back_to_queue(unsent, "not sent", delay_s=1, now=NOW)) == "NOT_SENT"
    assert outcome(silent, *replaced) == "REPLACED"


def test_a_program_that_ran_unseen_leaves_no_start_time_in_the_queue() -> None:
    job = a_failed_attempt(state=JobState.SUBMITTED)
    conclusion = Conclusion(
        act=Act.FAIL, failure=FailureKind.SUPERVISOR, reason="why", changes={"started_at": NOW - 1}
    )
    retry = decide_retry(job, FailureKind.SUPERVISOR, rules=RULES, jitter=0)
    assert after(job, *after_failure(job, conclusion, retry, now=NOW)).started_at is None


def test_a_placed_job_has_its_place_and_its_attempt_all_that_is_sent() -> None:
    request = StartRequest(
        remote_id="job-1", entrypoint="python x.py", runtime_env={"pip": ["x"]}, metadata={}
    )
    transition = placed(
        a_job(),
        request,
        "room",
        cluster="a",
        executor="other",
        session_name="s1",
        decision={"sentence": "room"},
    )
    made = apply_transition(a_job(), transition, now=NOW)
    assert (made.after.state, made.after.cluster, made.after.session_name) == (JobState.PLACED, "a", "s1")
    attempt = made.new_attempt
    assert attempt is not None
    assert (attempt.executor, attempt.entrypoint) == ("other", "python x.py")
    assert attempt.runtime_env == {"pip": ["x"]}
    assert (attempt.decision, attempt.reason) == ({"sentence": "room"}, "room")


@pytest.mark.parametrize(
    ("target", "new"), [(Target.FINISHED, JobState.FAILED), (Target.STOPPED, JobState.STOPPED)]
)
def test_a_job_that_can_never_start_ends_as_failed_or_as_stopped(target: Target, new: JobState) -> None:
    job = a_job(target=target)
    assert after(job, ended_in_queue(job, "why")).state is new


@pytest.mark.parametrize("state", sorted(set(JobState) - {JobState.QUEUED}))
def test_the_end_in_the_queue_does_not_hold_for_a_job_that_has_left_it(state: JobState) -> None:
    job = a_job(state=state, attempt=1)
    assert not holds(job, ended_in_queue(job, "why"))
