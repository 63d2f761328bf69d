"""A cluster that kills jobs gets less, then nothing, until a probe job does better; lost jobs take turns."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW, a_job

from ray_multicluster_scheduler.core.pacing import TokenBucket
from ray_multicluster_scheduler.core.quarantine import Allowance, Streak, after_end, allowance
from ray_multicluster_scheduler.core.rules import QuarantineRules
from ray_multicluster_scheduler.model.execution import FailureKind
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState

RULES = QuarantineRules(quick_s=30, less_from=3, nothing_from=6, pause_s=60, max_pause_s=600)
FINE = Streak()


def an_attempt(**changes: Any) -> Job:
    """An attempt on cluster 'a' that has just begun to run."""
    fields = {"state": JobState.RUNNING, "cluster": "a", "placed_at": NOW - 10, "started_at": NOW - 5}
    return a_job(**{**fields, **changes})


def after(*kinds: FailureKind | None, **attempt: Any) -> Streak:
    """What is remembered after attempts that ended so, one after another."""
    streak = Streak()
    for kind in kinds:
        streak = after_end(streak, an_attempt(**attempt), kind, now=NOW, rules=RULES)
    return streak


def allowed(streak: Streak, *live: Job, at: float = NOW, **others: Streak) -> Allowance | None:
    return allowance("a", {"a": streak, **others}, live, now=at, rules=RULES)


def test_a_few_deaths_are_no_reason_to_hold_a_cluster_back() -> None:
    assert allowed(after(*[FailureKind.SUPERVISOR] * 2)) is None


def test_a_quick_death_that_was_noticed_late_was_quick() -> None:
    times = {"started_at": NOW - 3600, "ended_at": NOW - 3590}
    assert after(*[FailureKind.SUPERVISOR] * 3, **times).deaths == 3
    assert after(FailureKind.SUPERVISOR, started_at=NOW - 3600, ended_at=NOW - 3500) == FINE


def test_after_three_quick_deaths_it_gets_one_job_at_a_time() -> None:
    streak = after(*[FailureKind.SUPERVISOR] * 3)
    held = allowed(streak)
    assert held is not None
    assert (held.jobs, "one job at a time" in held.reason) == (1, True)
    trying = allowed(streak, an_attempt(placed_at=NOW + 1, started_at=None), at=NOW + 2)
    assert trying is not None
    assert trying.jobs == 0


def test_after_six_it_gets_nothing_and_then_a_probe_job() -> None:
    streak = after(*[FailureKind.SUPERVISOR] * 6)
    soon, later = allowed(streak, at=NOW + 59), allowed(streak, at=NOW + 61)
    assert (soon and soon.jobs, later and later.jobs) == (0, 1)


def test_each_probe_job_that_dies_doubles_the_pause() -> None:
    streak = after(*[FailureKind.SUPERVISOR] * 6)
    probe = an_attempt(placed_at=NOW + 61, started_at=NOW + 62)
    streak = after_end(streak, probe, FailureKind.SUPERVISOR, now=NOW + 63, rules=RULES)
    soon, later = allowed(streak, at=NOW + 63 + 119), allowed(streak, at=NOW + 63 + 121)
    assert (soon and soon.jobs, later and later.jobs) == (0, 1)


def test_many_that_die_together_are_one_reason_not_many_pauses() -> None:
    later = allowed(after(*[FailureKind.SUPERVISOR] * 100), at=NOW + 61)
    assert later is not None
    assert later.jobs == 1


def test_one_good_end_clears_the_cluster() -> None:
    assert after(*[FailureKind.SUPERVISOR] * 9, None) == FINE


def test_a_probe_job_that_lives_on_clears_the_cluster_before_it_ends() -> None:
    streak = after(*[FailureKind.SUPERVISOR] * 9)
    probe = an_attempt(placed_at=NOW + 100, started_at=NOW + 101)
    assert allowed(streak, probe, at=NOW + 130) is not None
    assert allowed(streak, probe, at=NOW + 132) is None


def test_a_failure_after_a_long_run_is_no_quick_death() -> None:
    assert after(*[FailureKind.USER] * 20, started_at=NOW - 31) == FINE


@pytest.mark.parametrize("kind", [FailureKind.LOST, FailureKind.SILENT, FailureKind.TIMED_OUT])
def test_the_death_of_a_whole_cluster_or_a_limit_of_the_user_is_not_counted(kind: FailureKind) -> None:
    assert after(*[kind] * 20) == FINE


def test_failing_programs_count_half() -> None:
    assert allowed(after(*[FailureKind.USER] * 5), b=FINE) is None
    held = allowed(after(*[FailureKind.USER] * 6), b=FINE)
    assert held is not None
    assert held.jobs == 1


def test_where_programs_fail_everywhere_alike_no_cluster_is_blamed() -> None:
    bad = after(*[FailureKind.USER] * 20)
    assert allowed(bad, b=FINE) is not None
    assert allowed(bad, b=bad) is None
    assert allowed(bad) is None


def test_what_only_a_cluster_can_do_wrong_is_its_fault_even_if_it_is_the_only_one() -> None:
    assert allowed(after(*[FailureKind.SUPERVISOR] * 6)) is not None


@given(st.lists(st.sampled_from([*FailureKind, None]), max_size=60), st.floats(0, 1000))
def test_a_cluster_is_never_given_more_than_one_job_while_it_is_held_back(
    kinds: list[FailureKind | None], later_s: float
) -> None:
    held = allowed(after(*kinds), at=NOW + later_s, b=FINE)
    if held is not None:
        assert held.jobs in {0, 1}
        assert "died within" in held.reason


@given(st.floats(0.1, 100), st.integers(1, 20), st.lists(st.floats(0, 5), min_size=1, max_size=200))
def test_no_more_are_started_anew_than_the_bucket_allows(per_s: float, burst: int, gaps: list[float]) -> None:
    bucket, now, turns = TokenBucket(per_s=per_s, burst=burst), NOW, []
    for gap in gaps:
        now += gap
        turns.append(now + bucket.wait_s(now))
        bucket = bucket.taken(now)
    assert turns == sorted(turns)
    for first in range(len(turns)):
        for last in range(first, len(turns)):
            assert last - first + 1 <= burst + (turns[last] - turns[first]) * per_s + 1e-3


def test_a_few_lost_jobs_need_not_wait() -> None:
    bucket = TokenBucket(per_s=10, burst=10)
    for _ in range(10):
        assert bucket.wait_s(NOW) == 0
        bucket = bucket.taken(NOW)
    assert bucket.wait_s(NOW) > 0
