"""Waiting for a change wakes for every change, and for nothing else."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from tests.support.builders import NOW, a_snapshot, a_spec
from tests.support.leader import Leader

from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import Store

S = JobState
#: Long enough that a test which would use it up fails by its own time limit.
FOR_EVER = 3600.0

CHANGES: dict[str, Callable[[Leader], object]] = {
    "add": lambda leader: leader.store.jobs.add([("new", a_spec())], now=NOW),
    "apply": lambda leader: leader.move("job", S.SUCCEEDED),
    "request_stop": lambda leader: leader.store.jobs.request_stop(["job"], now=NOW, reason="stop"),
    "logs": lambda leader: leader.store.jobs.apply(
        [], logs=[("job", 1, "text")], epoch=leader.lease.epoch, now=NOW
    ),
    "set_drained": lambda leader: leader.store.clusters.set_drained("a", drained=True, reason="", now=NOW),
    "release_lease": lambda leader: leader.store.leases.release(leader.lease),
}


def newest(store: Store) -> int:
    return store.changes.wait(0, timeout_s=0.0)


def test_what_was_committed_before_is_told_at_once(store: Store, leader: Leader) -> None:
    leader.add("job")

    mark = store.changes.wait(0, timeout_s=FOR_EVER)

    assert mark > 0
    assert store.changes.wait(mark, timeout_s=0.0) == mark


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_wakes_who_waits(
    store: Store, leader: Leader, change: Callable[[Leader], object]
) -> None:
    leader.add("job", S.RUNNING)
    seen = newest(store)
    marks: list[int] = []
    waiter = threading.Thread(target=lambda: marks.append(store.changes.wait(seen, timeout_s=FOR_EVER)))
    waiter.start()

    change(leader)
    waiter.join()

    assert marks == [newest(store)]
    assert marks[0] > seen


def test_time_passes_without_news(store: Store, leader: Leader) -> None:
    leader.add("job")
    seen = newest(store)

    assert store.changes.wait(seen, timeout_s=0.01) == seen


def test_snapshots_and_renewals_of_the_lease_are_no_news(store: Store, leader: Leader) -> None:
    seen = newest(store)

    store.clusters.save_snapshots([a_snapshot("a")], epoch=leader.lease.epoch)
    store.leases.renew(leader.lease, ttl_s=60.0, now=NOW)
    store.leases.acquire("another", ttl_s=60.0, now=NOW)

    assert newest(store) == seen


def test_a_write_that_fails_is_no_news(store: Store, leader: Leader) -> None:
    leader.add("job")
    seen = newest(store)

    with pytest.raises(ValueError, match="already exists"):
        leader.add("job")

    assert newest(store) == seen


def test_a_subscriber_is_called_after_each_change_until_it_leaves(store: Store) -> None:
    seen: list[int] = []
    unsubscribe = store.changes.subscribe(lambda: seen.append(len(store.jobs.list())))

    store.jobs.add([("a", a_spec())], now=NOW)
    assert seen[-1] == 1
    unsubscribe()
    calls = len(seen)
    store.jobs.add([("b", a_spec())], now=NOW)

    assert len(seen) == calls


def test_a_subscriber_whose_event_loop_is_closed_does_not_fail_the_writer(store: Store) -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    store.changes.subscribe(lambda: loop.call_soon_threadsafe(print))

    assert store.jobs.add([("a", a_spec())], now=NOW)


def test_a_closed_store_wakes_and_refuses(store: Store) -> None:
    refused: list[StoreError] = []

    def wait() -> None:
        try:
            store.changes.wait(0, timeout_s=FOR_EVER)
        except StoreError as error:
            refused.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    store.close()
    waiter.join()

    assert "closed" in str(refused[0])
    with pytest.raises(StoreError, match="closed"):
        store.jobs.get("job")
