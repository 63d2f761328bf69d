"""The limit of starts follows what passes place and what looks find."""

from dataclasses import replace

from tests.support.builders import NOW, a_job, a_view

from ray_multicluster_scheduler.core.pacing import StartLimits
from ray_multicluster_scheduler.model.decision import Placement
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState


def new_limits(most: int = 1000) -> StartLimits:
    return StartLimits(["a", "b"], most=most)


def place(limits: StartLimits, count: int, *, allowance: int, first: int = 0) -> list[Job]:
    """Let a pass place jobs on `a`, which may be given `allowance` of them."""
    ids = [f"job-{number}" for number in range(first, first + count)]
    decided = [
        Placement(submission_id=each, cluster="a", scores={}, refusals={}, sentence="best") for each in ids
    ]
    limits.planned(decided, [a_view("a", allowance=allowance), a_view("b", allowance=2)])
    jobs = [a_job(each, state=JobState.PLACED, cluster="a", attempt=1) for each in ids]
    limits.moved(jobs, now=NOW)
    return jobs


def starts(limits: StartLimits) -> dict[str, int]:
    return {name: limits.of(name).starts for name in ("a", "b")}


def start(limits: StartLimits, jobs: list[Job], state: JobState = JobState.RUNNING) -> None:
    limits.moved([replace(job, state=state) for job in jobs], now=NOW)


def test_a_flight_that_one_look_finds_started_raises_the_limit_as_often_as_it_has_jobs() -> None:
    limits = new_limits()
    start(limits, place(limits, 2, allowance=2))
    assert starts(limits) == {"a": 3, "b": 2}
    start(limits, place(limits, 4, allowance=4))
    assert starts(limits) == {"a": 5, "b": 2}


def test_a_pass_that_used_the_limit_up_counts_although_others_have_arrived_since() -> None:
    limits = new_limits()
    first = place(limits, 1, allowance=3)
    second = place(limits, 2, allowance=2, first=1)
    start(limits, first)
    assert starts(limits)["a"] == 2
    start(limits, second)
    assert starts(limits)["a"] == 3


def test_jobs_that_did_not_use_the_limit_up_say_nothing_about_a_larger_one() -> None:
    limits = new_limits()
    for number in range(20):
        start(limits, place(limits, 1, allowance=2, first=number))
    assert starts(limits)["a"] == 2


def test_a_job_that_never_started_says_nothing() -> None:
    limits = new_limits()
    start(limits, place(limits, 2, allowance=2), JobState.FAILED)
    assert starts(limits)["a"] == 2


def test_the_setting_is_never_exceeded() -> None:
    limits = new_limits(most=3)
    for _ in range(5):
        start(limits, place(limits, 3, allowance=3))
    assert starts(limits) == {"a": 3, "b": 2}
