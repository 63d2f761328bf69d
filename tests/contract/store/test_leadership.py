"""One leader at a time, and nothing is written by a former one."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.builders import NOW, a_snapshot, a_spec
from tests.support.leader import Leader

from ray_multicluster_scheduler.errors import LeaseLost
from ray_multicluster_scheduler.model.job import Lease
from ray_multicluster_scheduler.model.result import LeftResult
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import Store

S = JobState


def take(store: Store, holder: str, now: float = NOW) -> Lease:
    lease = store.leases.acquire(holder, ttl_s=10.0, now=now)
    assert lease is not None
    return lease


def test_nobody_leads_a_new_store(store: Store) -> None:
    assert store.leases.current(now=NOW) is None


def test_a_free_lease_is_taken_for_its_time(store: Store) -> None:
    lease = take(store, "one")

    assert (lease.holder, lease.expires_at) == ("one", NOW + 10)
    assert store.leases.current(now=NOW + 9) == lease
    assert store.leases.current(now=NOW + 10) is None


def test_a_held_lease_is_not_given_to_another(store: Store) -> None:
    lease = take(store, "one")

    assert store.leases.acquire("two", ttl_s=10.0, now=NOW + 9) is None
    assert store.leases.current(now=NOW + 9) == lease


def test_the_holder_may_take_its_lease_again_and_keeps_its_epoch(store: Store) -> None:
    lease = take(store, "one")

    assert take(store, "one", NOW + 5) == replace(lease, expires_at=NOW + 15)


def test_a_new_holder_of_an_expired_lease_gets_a_larger_epoch(store: Store) -> None:
    lease = take(store, "one")

    assert take(store, "two", NOW + 10).epoch > lease.epoch


def test_a_lease_from_before_the_clock_was_set_back_blocks_nobody(store: Store) -> None:
    take(store, "one", NOW + 3 * 3600)

    assert store.leases.current(now=NOW) is None
    assert take(store, "two", NOW).holder == "two"


def test_a_lease_is_renewed_by_its_holder(store: Store) -> None:
    lease = take(store, "one")

    renewed = store.leases.renew(lease, ttl_s=10.0, now=NOW + 5)

    assert renewed == replace(lease, expires_at=NOW + 15) == store.leases.current(now=NOW + 14)


def test_a_late_renewal_is_fine_while_nobody_else_leads(store: Store) -> None:
    lease = take(store, "one")

    assert store.leases.renew(lease, ttl_s=10.0, now=NOW + 60).epoch == lease.epoch


def test_a_lease_that_another_took_cannot_be_renewed(store: Store) -> None:
    lease = take(store, "one")
    taken = take(store, "two", NOW + 10)

    with pytest.raises(LeaseLost, match="'two' leads now"):
        store.leases.renew(lease, ttl_s=10.0, now=NOW + 11)

    assert store.leases.current(now=NOW + 11) == taken


def test_a_released_lease_is_free_at_once_for_a_new_epoch(store: Store) -> None:
    lease = take(store, "one")

    store.leases.release(lease)

    assert store.leases.current(now=NOW) is None
    assert take(store, "one").epoch > lease.epoch


def test_releasing_a_lost_lease_does_not_harm_the_new_leader(store: Store) -> None:
    lease = take(store, "one")
    taken = take(store, "two", NOW + 10)

    store.leases.release(lease)

    assert store.leases.current(now=NOW + 11) == taken


def test_of_racing_threads_one_leads(store: Store) -> None:
    start = threading.Barrier(4)
    taken: list[Lease | None] = []

    def race(holder: str) -> None:
        start.wait()
        taken.append(store.leases.acquire(holder, ttl_s=10.0, now=NOW))

    threads = [threading.Thread(target=race, args=(f"h{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [lease for lease in taken if lease] == [store.leases.current(now=NOW)]


Write = Callable[[Store, int], object]
FENCED: dict[str, Write] = {
    "apply": lambda store, epoch: Leader.apply_as(store, epoch, "job", S.SUCCEEDED),
    "mark_attempt": lambda store, epoch: store.history.mark_attempt(
        "again", 1, outcome="SUPERSEDED", reason="", epoch=epoch, now=NOW
    ),
    "logs": lambda store, epoch: store.jobs.apply([], logs=[("job", 1, "text")], epoch=epoch, now=NOW),
    "results": lambda store, epoch: store.jobs.apply(
        [], results=[("job", 1, LeftResult(content=b"1"))], epoch=epoch, now=NOW
    ),
    "save_snapshots": lambda store, epoch: store.clusters.save_snapshots([a_snapshot("a")], epoch=epoch),
}


def prepared(store: Store) -> Leader:
    leader = Leader(store)
    leader.add("job", S.RUNNING)
    leader.add("again", S.LOST)
    leader.move("again", S.QUEUED)
    return leader


def contents(store: Store) -> object:
    return (
        store.jobs.list(),
        store.history.events(),
        store.history.attempts("again"),
        store.history.load_log("job"),
        store.history.load_result("job"),
        store.clusters.load_snapshots(),
    )


@pytest.mark.parametrize("write", FENCED.values(), ids=FENCED)
def test_every_fenced_write_of_a_former_leader_is_refused_and_leaves_no_trace(
    store: Store, write: Write
) -> None:
    former = prepared(store)
    store.leases.release(former.lease)
    take(store, "new")
    before = contents(store)

    with pytest.raises(LeaseLost):
        write(store, former.lease.epoch)

    assert contents(store) == before


@pytest.mark.parametrize("write", FENCED.values(), ids=FENCED)
def test_every_fenced_write_is_refused_after_the_lease_was_given_up(store: Store, write: Write) -> None:
    former = prepared(store)
    store.leases.release(former.lease)

    with pytest.raises(LeaseLost, match="nobody leads"):
        write(store, former.lease.epoch)


@pytest.mark.parametrize("write", FENCED.values(), ids=FENCED)
def test_every_fenced_write_of_the_leader_is_made(store: Store, write: Write) -> None:
    leader = prepared(store)
    before = contents(store)

    write(store, leader.lease.epoch)

    assert contents(store) != before


def test_accepting_stopping_and_draining_need_no_lease(store: Store) -> None:
    store.jobs.add([("job", a_spec())], now=NOW)
    store.jobs.request_stop(["job"], now=NOW, reason="stopped by ann")
    store.clusters.set_drained("a", drained=True, reason="", now=NOW)

    assert store.leases.current(now=NOW) is None
