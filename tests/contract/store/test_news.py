"""Waiting for a change wakes for every change, and for nothing else."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from tests.builders import NOW, a_snapshot, a_spec
from tests.contract.store.leader import Leader

from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import SqlStore
from ray_multicluster_scheduler.store_ports import JobStore

S = JobState
#: Long enough that a test which would use it up fails by its own time limit.
FOR_EVER = 3600.0

CHANGES: dict[str, Callable[[Leader], object]] = {
    "add": lambda leader: leader.store.add([("new", a_spec())], now=NOW),
    "apply": lambda leader: leader.move("job", S.SUCCEEDED),
    "request_stop": lambda leader: leader.store.request_stop(["job"], now=NOW, reason="stop"),
    "logs": lambda leader: leader.store.apply(
        [], logs=[("job", 1, "text")], epoch=leader.lease.epoch, now=NOW
    ),
    "set_drained": lambda leader: leader.store.set_drained("a", drained=True, reason="", now=NOW),
    "release_lease": lambda leader: leader.store.release_lease(leader.lease),
}


def newest(store: JobStore) -> int:
    return store.wait_for_change(0, timeout_s=0.0)


def test_what_was_committed_before_is_told_at_once(store: JobStore, leader: Leader) -> None:
    leader.add("job")

    mark = store.wait_for_change(0, timeout_s=FOR_EVER)

    assert mark > 0
    assert store.wait_for_change(mark, timeout_s=0.0) == mark


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_wakes_who_waits(
    store: JobStore, leader: Leader, change: Callable[[Leader], object]
) -> None:
    leader.add("job", S.RUNNING)
    seen = newest(store)
    marks: list[int] = []
    waiter = threading.Thread(target=lambda: marks.append(store.wait_for_change(seen, timeout_s=FOR_EVER)))
    waiter.start()

    change(leader)
    waiter.join()

    assert marks == [newest(store)]
    assert marks[0] > seen


def test_time_passes_without_news(store: JobStore, leader: Leader) -> None:
    leader.add("job")
    seen = newest(store)

    assert store.wait_for_change(seen, timeout_s=0.01) == seen


def test_snapshots_and_renewals_of_the_lease_are_no_news(store: JobStore, leader: Leader) -> None:
    seen = newest(store)

    store.save_snapshots([a_snapshot("a")], epoch=leader.lease.epoch)
    store.renew_lease(leader.lease, ttl_s=60.0, now=NOW)
    store.acquire_lease("another", ttl_s=60.0, now=NOW)

    assert newest(store) == seen


def test_a_write_that_fails_is_no_news(store: JobStore, leader: Leader) -> None:
    leader.add("job")
    seen = newest(store)

    with pytest.raises(ValueError, match="already exists"):
        leader.add("job")

    assert newest(store) == seen


def test_a_subscriber_is_called_after_each_change_until_it_leaves(store: SqlStore) -> None:
    seen: list[int] = []
    unsubscribe = store.subscribe(lambda: seen.append(len(store.list_jobs())))

    store.add([("a", a_spec())], now=NOW)
    assert seen[-1] == 1
    unsubscribe()
    calls = len(seen)
    store.add([("b", a_spec())], now=NOW)

    assert len(seen) == calls


def test_a_subscriber_whose_event_loop_is_closed_does_not_fail_the_writer(store: SqlStore) -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    store.subscribe(lambda: loop.call_soon_threadsafe(print))

    assert store.add([("a", a_spec())], now=NOW)


def test_a_closed_store_wakes_and_refuses(store: SqlStore) -> None:
    refused: list[StoreError] = []

    def wait() -> None:
        try:
            store.wait_for_change(0, timeout_s=FOR_EVER)
        except StoreError as error:
            refused.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    store.close()
    waiter.join()

    assert "closed" in str(refused[0])
    with pytest.raises(StoreError, match="closed"):
        store.get("job")
