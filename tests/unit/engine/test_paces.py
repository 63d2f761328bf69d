"""The limit of starts follows what passes place and what looks find."""

from dataclasses import replace

from tests.builders import a_job, a_view

from ray_multicluster_scheduler.engine.paces import Paces
from ray_multicluster_scheduler.model.decision import Placement
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState


class StandingClock:
    """No start takes any time: nothing is ever slow."""

    def now(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return 0.0


def new_paces(most: int = 1000) -> Paces:
    return Paces(["a", "b"], StandingClock(), most=most)


def place(paces: Paces, count: int, *, allowance: int, first: int = 0) -> list[Job]:
    """Let a pass place jobs on `a`, which may be given `allowance` of them."""
    ids = [f"job-{number}" for number in range(first, first + count)]
    decided = [
        Placement(submission_id=each, cluster="a", scores={}, refusals={}, sentence="best") for each in ids
    ]
    paces.planned(decided, [a_view("a", allowance=allowance), a_view("b", allowance=2)])
    jobs = [a_job(each, state=JobState.PLACED, cluster="a", attempt=1) for each in ids]
    paces.moved(jobs)
    return jobs


def limits(paces: Paces) -> dict[str, int]:
    return {name: paces.of(name).starts for name in ("a", "b")}


def start(paces: Paces, jobs: list[Job], state: JobState = JobState.RUNNING) -> None:
    paces.moved([replace(job, state=state) for job in jobs])


def test_a_flight_that_one_look_finds_started_raises_the_limit_as_often_as_it_has_jobs() -> None:
    paces = new_paces()
    start(paces, place(paces, 2, allowance=2))
    assert limits(paces) == {"a": 3, "b": 2}
    start(paces, place(paces, 4, allowance=4))
    assert limits(paces) == {"a": 5, "b": 2}


def test_a_pass_that_used_the_limit_up_counts_although_others_have_arrived_since() -> None:
    paces = new_paces()
    first = place(paces, 1, allowance=3)
    second = place(paces, 2, allowance=2, first=1)
    start(paces, first)
    assert limits(paces)["a"] == 2
    start(paces, second)
    assert limits(paces)["a"] == 3


def test_jobs_that_did_not_use_the_limit_up_say_nothing_about_a_larger_one() -> None:
    paces = new_paces()
    for number in range(20):
        start(paces, place(paces, 1, allowance=2, first=number))
    assert limits(paces)["a"] == 2


def test_a_job_that_never_started_says_nothing() -> None:
    paces = new_paces()
    start(paces, place(paces, 2, allowance=2), JobState.FAILED)
    assert limits(paces)["a"] == 2


def test_the_setting_is_never_exceeded() -> None:
    paces = new_paces(most=3)
    for _ in range(5):
        start(paces, place(paces, 3, allowance=3))
    assert limits(paces) == {"a": 3, "b": 2}
