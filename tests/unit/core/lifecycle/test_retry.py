"""Retries: separate budgets, growing delays, never back to the cluster that broke the environment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import a_job, a_spec

from ray_multicluster_scheduler.core.lifecycle.retry import RetryDecision, decide_retry
from ray_multicluster_scheduler.core.rules import RetryRules
from ray_multicluster_scheduler.model.execution import FailureKind
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState

RULES = RetryRules(max_infra_retries=3, delay_s=2, max_delay_s=60)
USERS_OWN = {FailureKind.USER, FailureKind.TIMED_OUT}


def a_failed_attempt(**changes: object) -> Job:
    return a_job(**{"state": JobState.RUNNING, "attempt": 1, "cluster": "a", "remote_id": "job-1", **changes})


def test_a_users_failure_is_not_retried_unless_asked_for() -> None:
    assert not decide_retry(a_failed_attempt(), FailureKind.USER, rules=RULES, jitter=0).again
    asked = a_failed_attempt(spec=a_spec(max_retries=1))
    assert decide_retry(asked, FailureKind.USER, rules=RULES, jitter=0).again


@pytest.mark.parametrize(
    ("kind", "retries", "failures", "said"),
    [
        (FailureKind.USER, 0, 0, ""),
        (FailureKind.USER, 2, 2, "no retry left (2 of 2)"),
        (FailureKind.LOST, 0, 3, "no retry left (3 of 3)"),
    ],
)
def test_the_end_of_all_retries_is_said_with_their_number(
    kind: FailureKind, retries: int, failures: int, said: str
) -> None:
    job = a_failed_attempt(spec=a_spec(max_retries=retries), user_failures=failures, infra_failures=failures)
    assert decide_retry(job, kind, rules=RULES, jitter=0).sentence == said


@pytest.mark.parametrize("kind", [kind for kind in FailureKind if kind is not FailureKind.REFUSED])
def test_a_session_is_never_begun_again_without_its_program(kind: FailureKind) -> None:
    session = a_failed_attempt(spec=a_spec(max_retries=5))
    decision = decide_retry(session, kind, rules=RULES, jitter=0, restartable=False)
    assert (decision.again, decision.sentence) == (False, "its program has to connect again")


def test_a_session_that_its_cluster_could_not_begin_is_placed_elsewhere_while_its_program_waits() -> None:
    session = a_failed_attempt(spec=a_spec())
    decision = decide_retry(session, FailureKind.REFUSED, rules=RULES, jitter=0, restartable=False)
    assert (decision.again, decision.avoid) == (True, ("a",))


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.sampled_from(FailureKind))
def test_one_budget_never_pays_for_the_other(infra: int, user: int, retries: int, kind: FailureKind) -> None:
    job = a_failed_attempt(infra_failures=infra, user_failures=user, spec=a_spec(max_retries=retries))
    decision = decide_retry(job, kind, rules=RULES, jitter=0.5)
    if kind in USERS_OWN:
        assert (decision.infra_failures, decision.user_failures) == (infra, user + 1)
        assert decision.again == (user + 1 <= retries)
    else:
        assert (decision.infra_failures, decision.user_failures) == (infra + 1, user)
        assert decision.again == (infra + 1 <= 3 and kind is not FailureKind.OUTCOME_UNKNOWN)


@given(st.floats(0, 1), st.floats(0, 1))
def test_delays_grow_whatever_the_jitter_and_have_a_ceiling(first: float, second: float) -> None:
    rules = RetryRules(max_infra_retries=50, delay_s=2, max_delay_s=60)
    delays = [
        decide_retry(a_failed_attempt(infra_failures=n), FailureKind.LOST, rules=rules, jitter=jitter).delay_s
        for n, jitter in ((0, first), (2, second), (40, 1.0))
    ]
    assert delays[0] < delays[1] <= delays[2] == 60


@pytest.mark.parametrize("kind", FailureKind)
def test_a_cluster_that_broke_refused_or_left_the_job_is_avoided_and_a_lost_one_is_not(
    kind: FailureKind,
) -> None:
    elsewhere = kind in {
        FailureKind.ENVIRONMENT,
        FailureKind.NO_ENVIRONMENT,
        FailureKind.UNSCHEDULABLE,
        FailureKind.REFUSED,
        FailureKind.SILENT,
    }
    decision = decide_retry(a_failed_attempt(), kind, rules=RULES, jitter=0)
    assert decision.avoid == (("a",) if elsewhere else ())


def test_a_turn_that_comes_later_than_the_delay_is_waited_for_and_said() -> None:
    decision = decide_retry(a_failed_attempt(), FailureKind.LOST, rules=RULES, jitter=0, least_delay_s=99)
    assert decision.delay_s == 99
    assert "in 99.0 s" in decision.sentence


def test_an_environment_that_cannot_be_had_is_tried_elsewhere_or_not_at_all() -> None:
    def decide(*, elsewhere: bool) -> RetryDecision:
        kind = FailureKind.NO_ENVIRONMENT
        return decide_retry(a_failed_attempt(), kind, rules=RULES, jitter=0, elsewhere=elsewhere)

    assert decide(elsewhere=True).again
    assert "tried again on another cluster" in decide(elsewhere=True).sentence
    assert not decide(elsewhere=False).again
    assert "no other cluster can take this environment" in decide(elsewhere=False).sentence


def test_what_may_have_done_its_work_is_never_repeated() -> None:
    decision = decide_retry(a_failed_attempt(), FailureKind.OUTCOME_UNKNOWN, rules=RULES, jitter=0)
    assert not decision.again
