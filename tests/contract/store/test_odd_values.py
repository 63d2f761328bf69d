"""Values that some databases cannot keep."""

import pytest
from tests.support.builders import NOW, a_spec
from tests.support.leader import Leader

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import Store

ODD = "before \0 \ud800 after 中文 😀"
KEPT = "before � � after 中文 😀"


def test_nul_and_lone_surrogates_in_logs_and_reasons_are_replaced(leader: Leader) -> None:
    job = leader.add("job", JobState.RUNNING)
    wanted = leader.wanted(job, JobState.FAILED, reason=ODD, error_type=ODD, attempt_changes={"reason": ODD})
    store = leader.store
    (ended,) = store.jobs.apply([wanted], epoch=leader.lease.epoch, now=NOW, logs=[("job", 1, ODD)])
    assert (ended.reason, ended.error_type) == (KEPT, KEPT)
    assert store.jobs.get("job") == ended
    assert store.history.load_log("job") == KEPT
    assert store.history.events("job")[-1].reason == KEPT
    assert store.history.attempts("job")[-1].reason == KEPT


def test_a_stop_may_have_any_reason(leader: Leader) -> None:
    leader.add("job")
    (stopping,) = leader.store.jobs.request_stop(["job"], now=NOW, reason=ODD)
    assert stopping.stop_reason == KEPT


@pytest.mark.parametrize("number", [2**31, -(2**40), 2**63 - 1, -(2**63)])
def test_numbers_have_64_bits(store: Store, number: int) -> None:
    store.jobs.add([("job", a_spec(priority=number))], now=NOW)
    assert store.jobs.get("job").spec.priority == number
    assert [job.submission_id for job in store.queue.runnable(now=NOW)] == ["job"]


@pytest.mark.parametrize("number", [2**63, -(2**70)])
def test_larger_numbers_are_refused_and_nothing_else_is(store: Store, number: int) -> None:
    with pytest.raises(InvalidRequest, match="64 bits"):
        store.jobs.add([("job", a_spec(priority=number))], now=NOW)
    store.jobs.add([("job", a_spec())], now=NOW)


def test_ids_with_a_common_beginning_stand_together(store: Store) -> None:
    ids = ["a-1", "a_1", "A-1", "a-2", "a", "ab", "é-1", "a-10"]
    store.jobs.add([(each, a_spec()) for each in ids], now=NOW)
    assert store.jobs.ids_beginning("a-", limit=10) == ("a-1", "a-10", "a-2")
    assert store.jobs.ids_beginning("", limit=10) == tuple(sorted(ids))
