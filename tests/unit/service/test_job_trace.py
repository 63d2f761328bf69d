"""A job's way as a trace."""

from typing import Any

import pytest
from tests.support.builders import NOW, a_job

from ray_multicluster_scheduler.model.job import Attempt, JobEvent
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.server.traces import STEPS, JobTrace, trace_of
from ray_multicluster_scheduler.service.make_views import show_attempt, show_job
from ray_multicluster_scheduler.service.views import AttemptView, JobView

S = JobState
#: Old, new, seconds after the start, attempt, cluster.
WAY = [
    (None, S.QUEUED, 0, 0, None),
    (S.QUEUED, S.PLACED, 2, 1, "a"),
    (S.PLACED, S.SUBMITTED, 3, 1, "a"),
    (S.SUBMITTED, S.SUBMITTED, 4, 1, "a"),
    (S.SUBMITTED, S.RUNNING, 5, 1, "a"),
    (S.RUNNING, S.QUEUED, 9, 1, "a"),
    (S.QUEUED, S.PLACED, 10, 2, "b"),
    (S.PLACED, S.SUBMITTED, 11, 2, "b"),
    (S.SUBMITTED, S.SUCCEEDED, 12, 2, "b"),
]
GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def events(way: list[tuple[Any, ...]]) -> list[JobEvent]:
    return [
        JobEvent(
            id=number,
            submission_id="job-1",
            at=NOW + at,
            old=old,
            new=new,
            attempt=attempt,
            cluster=cluster,
            reason=f"to {new.value}",
        )
        for number, (old, new, at, attempt, cluster) in enumerate(way)
    ]


def a_view(**metadata: str) -> JobView:
    job = a_job()
    shown = show_job(job, ())
    return shown.model_copy(update={"metadata": metadata, "state": S.SUCCEEDED})


def traced(way: list[tuple[Any, ...]], **metadata: str) -> JobTrace:
    trace = trace_of(a_view(**metadata), events(way), store_id="store")
    assert trace is not None
    return trace


def test_each_stay_in_a_state_is_a_step_and_the_steps_fill_the_whole_way() -> None:
    trace = traced(WAY)

    assert [(s.name, s.begun - NOW, s.ended - NOW, s.attempt, s.cluster) for s in trace.steps] == [
        ("place", 0, 2, 1, "a"),
        ("send", 2, 3, 1, "a"),
        ("start", 3, 5, 1, "a"),
        ("run", 5, 9, 1, "a"),
        ("place", 9, 10, 2, "b"),
        ("send", 10, 11, 2, "b"),
        ("start", 11, 12, 2, "b"),
    ]
    assert [moment.name for moment in trace.whole.moments] == ["accepted", "ended"]
    assert [moment.says for moment in trace.steps[2].moments] == ["to SUBMITTED"]
    assert [step.name for step in trace.steps if step.problem] == ["run"]


def test_every_state_that_can_be_left_has_a_step() -> None:
    assert set(STEPS) == {state for state in S if state not in (S.SUCCEEDED, S.FAILED, S.STOPPED)}


def test_the_same_job_has_the_same_ids_and_no_two_spans_share_one() -> None:
    first, again = traced(WAY), traced(WAY)
    assert first == again
    assert len({first.whole.span_id, *(step.span_id for step in first.steps)}) == len(first.steps) + 1
    other = trace_of(a_view(), events(WAY), store_id="another store")
    assert other is not None
    assert other.trace_id != first.trace_id


def test_a_given_traceparent_makes_the_job_a_part_of_that_trace() -> None:
    trace = traced(WAY, traceparent=GIVEN)
    assert f"{trace.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{trace.parent_id:016x}" == "b7ad6b7169203331"
    assert trace.sampled
    assert not traced(WAY, traceparent=GIVEN[:-1] + "0").sampled


@pytest.mark.parametrize(
    "word", ["", "nonsense", f"ff{GIVEN[2:]}", f"00-{'0' * 32}-{'0' * 16}-01", GIVEN + "x"]
)
def test_a_wrong_traceparent_is_none(word: str) -> None:
    assert traced(WAY, traceparent=word).parent_id is None
    assert traced(WAY, traceparent=word).trace_id == traced(WAY).trace_id
    assert traced(WAY, traceparent=word).sampled


def test_a_way_without_beginning_or_end_is_no_trace() -> None:
    for part in ([], WAY[1:], WAY[:-1]):
        assert trace_of(a_view(), events(part), store_id="store") is None


def an_attempt(number: int, started: float | None, ended: float) -> AttemptView:
    """An attempt that ran between these seconds after the start, as its cluster says."""
    attempt = Attempt(
        submission_id="job-1",
        number=number,
        cluster="a",
        remote_id=f"job-1--r{number}",
        session_name=None,
        placed_at=NOW,
        started_at=None if started is None else NOW + started,
        ended_at=NOW + ended,
    )
    return show_attempt(attempt, a_job(), {}, ())


def steps(way: list[tuple[Any, ...]], *attempts: AttemptView) -> list[tuple[str, float, float]]:
    trace = trace_of(a_view(), events(way), attempts, store_id="store")
    assert trace is not None
    assert trace.whole.ended == trace.steps[-1].ended
    return [(step.name, step.begun - NOW, step.ended - NOW) for step in trace.steps]


def test_programs_run_when_their_clusters_say_and_not_when_that_was_noticed() -> None:
    assert steps(WAY, an_attempt(1, 4.5, 6), an_attempt(2, 10.5, 11.5)) == [
        ("place", 0, 2),
        ("send", 2, 3),
        ("start", 3, 4.5),
        ("run", 4.5, 6),
        ("place", 6, 10),
        ("send", 10, 10.5),
        ("start", 10.5, 10.5),
        ("run", 10.5, 11.5),
    ]


def test_a_program_that_never_ran_has_no_run() -> None:
    assert steps([*WAY[:4], (S.SUBMITTED, S.FAILED, 9, 1, "a")], an_attempt(1, None, 7)) == [
        ("place", 0, 2),
        ("send", 2, 3),
        ("start", 3, 7),
    ]


def test_a_silence_is_no_longer_than_the_run_that_it_hides() -> None:
    silent = [(S.RUNNING, S.UNREACHABLE, 9, 1, "a"), (S.UNREACHABLE, S.SUCCEEDED, 100, 1, "a")]
    assert steps(WAY[:5] + silent, an_attempt(1, 4.5, 7))[-2:] == [("run", 4.5, 7), ("unreachable", 7, 7)]
