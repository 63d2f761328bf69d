"""The attempts of a span of time: those that were on their clusters at some moment of it, and no others."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.builders import NOW, a_spec
from tests.support.leader import Leader

from ray_multicluster_scheduler.model.job import AttemptSpan
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import Store, open_memory_store

S = JobState


def ran(leader: Leader, submission_id: str, begin: float, end: float | None, **spec: Any) -> None:
    """Let a job be on a cluster from `begin` to `end` seconds after now; None: it is there still."""
    cluster = spec.pop("cluster", "a")
    leader.store.jobs.add([(submission_id, a_spec(**spec))], now=NOW)
    leader.move(submission_id, S.PLACED, now=NOW + begin, cluster=cluster)
    leader.move(submission_id, S.RUNNING, now=NOW + begin)
    if end is not None:
        leader.move(submission_id, S.SUCCEEDED, now=NOW + end)


def found(store: Store, since: float, until: float, *, limit: int = 100, **filters: Any) -> list[str]:
    spans = store.history.spans(since=NOW + since, until=NOW + until, limit=limit, **filters)
    return [span.submission_id for span in spans]


@pytest.fixture
def filled(leader: Leader) -> Store:
    ran(leader, "before", 0, 10)
    ran(leader, "into", 5, 25, user="bob")
    ran(leader, "over", 6, 100, cluster="b")
    ran(leader, "lives", 7, None)
    ran(leader, "within", 22, 24)
    ran(leader, "out", 28, 50, cluster="b")
    ran(leader, "began", 29, None, user="bob")
    ran(leader, "after", 60, 70)
    leader.add("waits")
    return leader.store


def test_what_overlaps_is_told_in_the_order_of_its_begin(filled: Store) -> None:
    assert found(filled, 20, 30) == ["into", "over", "lives", "within", "out", "began"]
    assert found(filled, 10, 20) == ["before", "into", "over", "lives"], "both ends belong to it"
    assert found(filled, 200, 300) == ["lives", "began"]
    assert found(filled, -20, -10) == []


def test_it_can_be_of_one_cluster_or_one_user(filled: Store) -> None:
    assert found(filled, 20, 30, cluster="b") == ["over", "out"]
    assert found(filled, 20, 30, user="bob") == ["into", "began"]
    assert found(filled, 20, 30, user="bob", cluster="b") == []


def test_of_too_many_the_newest_are_told(filled: Store) -> None:
    whole = found(filled, 20, 30)
    for limit in range(1, 8):
        assert found(filled, 20, 30, limit=limit) == whole[-limit:]


def test_a_span_has_the_times_of_the_attempt_and_the_state_of_its_job(leader: Leader) -> None:
    spec = {"name": "n", "group": "g", "requirements": {"CPU": 2.0}}
    leader.add("job", **spec)
    leader.move("job", S.PLACED, now=NOW + 1, cluster="a")
    leader.move("job", S.QUEUED, now=NOW + 2)
    leader.move("job", S.PLACED, now=NOW + 3, cluster="b")
    leader.move("job", S.RUNNING, now=NOW + 4)
    job = {"submission_id": "job", "name": "n", "user": "ann", "group": "g", "claim": {"CPU": 2.0}}
    first = AttemptSpan(
        **job,
        cluster="a",
        attempt=1,
        placed_at=NOW + 1,
        started_at=None,
        ended_at=NOW + 2,
        end_unreported=False,
        outcome="NOT_STARTED",
        state=S.RUNNING,
    )
    second = AttemptSpan(
        **job,
        cluster="b",
        attempt=2,
        placed_at=NOW + 3,
        started_at=NOW + 4,
        ended_at=None,
        end_unreported=False,
        outcome=None,
        state=S.RUNNING,
    )
    assert leader.store.history.spans(since=NOW, until=NOW + 9, limit=10) == (first, second)


_TIME = st.integers(0, 20)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(_TIME, st.none() | _TIME), max_size=6), _TIME, _TIME, st.integers(1, 7))
def test_exactly_the_overlapping_ones_are_found(
    runs: list[tuple[int, int | None]], since: int, length: int, limit: int
) -> None:
    store = open_memory_store()
    leader = Leader(store)
    until = since + length
    times = []
    for number, (begin, lasts) in enumerate(runs):
        end = None if lasts is None else begin + lasts
        ran(leader, f"j{number:02}", begin, end)
        if begin <= until and (end is None or end >= since):
            times.append((begin, f"j{number:02}"))
    assert found(store, since, until, limit=limit) == [name for _, name in sorted(times)][-limit:]
    store.close()
