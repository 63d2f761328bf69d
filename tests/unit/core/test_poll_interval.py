"""Looks follow what is going on: near while something is about to change, rare otherwise."""

import pytest
from tests.support.builders import NOW, a_job

from ray_multicluster_scheduler.core.pacing import FEW, look_interval_s
from ray_multicluster_scheduler.model.job import Job, Target
from ray_multicluster_scheduler.model.states import JobState

POLL_S, PROBE_S = 1.0, 10.0


def running_for(seconds: float, **changes: object) -> Job:
    return a_job(**{"state": JobState.RUNNING, "changed_at": NOW - seconds, **changes})


def many_running_for(seconds: float) -> list[Job]:
    return [running_for(seconds, submission_id=f"job-{number}") for number in range(FEW + 1)]


def interval(*jobs: Job, look_took_s: float = 0.0) -> float:
    return look_interval_s(
        jobs, now=NOW, look_took_s=look_took_s, poll_interval_s=POLL_S, probe_interval_s=PROBE_S
    )


def test_a_cluster_without_jobs_is_left_to_the_probes() -> None:
    assert interval() == PROBE_S


def test_what_has_just_changed_is_looked_at_soonest() -> None:
    assert interval(running_for(0.5), running_for(3600)) == POLL_S / 8


def test_what_has_run_for_long_is_looked_at_at_the_poll_interval() -> None:
    assert interval(*many_running_for(3600)) == POLL_S


def test_a_few_jobs_are_looked_at_twice_as_often() -> None:
    assert interval(*many_running_for(3600)[:FEW]) == POLL_S / 2


def test_in_between_the_interval_grows_with_the_time_since_the_last_change() -> None:
    assert interval(*many_running_for(12)) == pytest.approx(0.75)


@pytest.mark.parametrize("changes", [{"state": JobState.SUBMITTED}, {"target": Target.STOPPED}])
def test_a_job_that_starts_or_is_being_stopped_is_looked_at_twice_as_often(
    changes: dict[str, object],
) -> None:
    assert interval(running_for(3600, **changes)) == POLL_S / 2


def test_a_cluster_that_answers_late_is_asked_less_often() -> None:
    assert interval(*many_running_for(0.5), look_took_s=0.06) == pytest.approx(0.6)


def test_however_late_it_answers_the_poll_interval_holds() -> None:
    assert interval(*many_running_for(0.5), look_took_s=5.0) == POLL_S


def test_a_cluster_that_is_silent_is_looked_at_seldom() -> None:
    assert interval(running_for(1, state=JobState.UNREACHABLE)) == 5 * POLL_S
