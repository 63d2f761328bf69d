"""Claims are kept, not counted anew: after any moves they are what a count would say."""

from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW, a_job, a_spec
from tests.support.strategies import THOROUGH, resources

from ray_multicluster_scheduler.core.live_jobs import Claims, LiveJobs
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.resources import Resources, plus
from ray_multicluster_scheduler.model.states import LIVE, JobState

S = JobState


@st.composite
def moves(draw: st.DrawFn) -> list[Job]:
    """Some jobs, each in one state after another, on one cluster or another."""
    claims = [draw(resources()) for _ in range(4)]
    return [
        a_job(
            f"job-{number}",
            spec=a_spec(requirements=claims[number], user=f"user-{number % 2}"),
            state=(state := draw(st.sampled_from(list(S)))),
            cluster=draw(st.sampled_from(("a", "b"))) if state in LIVE else None,
            placed_at=NOW + draw(st.integers(0, 9)),
        )
        for number in draw(st.lists(st.integers(0, 3), max_size=30))
    ]


def counted(jobs: Sequence[Job]) -> Resources:
    total: Resources = {}
    for job in jobs:
        total = plus(total, job.spec.claim)
    return total


@THOROUGH
@given(moves())
def test_what_is_kept_is_what_a_count_would_say(made: list[Job]) -> None:
    live = LiveJobs()
    now: dict[str, Job] = {}
    for job in made:
        live.put(job)
        now[job.submission_id] = job
    alive = [job for job in now.values() if job.state in LIVE]
    assert {job.submission_id: job for job in live.all()} == {job.submission_id: job for job in alive}
    for cluster in ("a", "b"):
        here, kept = [job for job in alive if job.cluster == cluster], live.on(cluster)
        assert kept.claims.total == counted(here)
        assert [sorted(holding.claim.items()) for holding in kept.holdings] == [
            sorted(kept.jobs[name].spec.claim.items()) for name in kept.jobs
        ]
        starting = [job for job in here if job.state in {S.PLACED, S.SUBMITTED}]
        assert set(kept.starting) == {job.submission_id for job in starting}
        assert kept.last_start_at == max((job.placed_at for job in starting), default=None)
    users = {job.spec.user for job in alive}
    assert live.held_by_user() == {
        user: counted([job for job in alive if job.spec.user == user]) for user in users
    }


def test_jobs_that_were_placed_after_the_last_probe_are_not_in_what_it_saw() -> None:
    def job(name: str, state: JobState, placed: float) -> Job:
        return a_job(name, state=state, cluster="a", placed_at=NOW + placed)

    live = LiveJobs([job("old", S.RUNNING, 0), job("slow", S.SUBMITTED, 1), job("young", S.RUNNING, 5)])
    assert live.on("a").unseen(NOW + 3) == {"CPU": 2.0}
    assert live.on("a").unseen(NOW + 6) == {"CPU": 1.0}


@THOROUGH
@given(st.lists(st.floats(0.001, 1e13), min_size=1, max_size=50), st.randoms())
def test_claims_that_are_taken_off_again_leave_nothing(amounts: list[float], order: Random) -> None:
    claims = Claims()
    for amount in amounts:
        claims.add({"memory": amount, "CPU": amount / 7})
    order.shuffle(amounts)
    for amount in amounts:
        claims.remove({"memory": amount, "CPU": amount / 7})
    assert not claims
    assert claims.total == {}
