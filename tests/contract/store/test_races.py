"""Two connections at once. Each of these goes wrong where writers do not wait for each other."""

from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path

import pytest
from tests.contract.store.conftest import OpenStore, opener
from tests.contract.store.paused_commit import PATIENCE_S, PausedCommit, is_blocked, threads
from tests.support.builders import NOW, a_spec
from tests.support.leader import Leader

from ray_multicluster_scheduler.errors import DuplicateSubmission, LeaseLost
from ray_multicluster_scheduler.model.job import Target
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import Store

ROUNDS = 20


@pytest.fixture(params=["sqlite", "postgres"])
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    return opener(request, request.param, tmp_path)


@pytest.fixture
def one(open_again: OpenStore) -> Iterator[Store]:
    store = open_again()
    yield store
    store.close()


@pytest.fixture
def other(open_again: OpenStore, one: Store) -> Iterator[Store]:
    store = open_again()
    assert store.store_id == one.store_id
    yield store
    store.close()


def test_a_leader_whose_time_is_over_cannot_write_after_its_successor(one: Store, other: Store) -> None:
    leader = Leader(one)
    job = leader.add("job", JobState.SUBMITTED)
    one.leases.release(leader.lease)
    old = one.leases.acquire("old", ttl_s=0.001, now=NOW)
    assert old is not None
    with threads() as pool:
        late = PausedCommit(
            pool, lambda: one.jobs.apply([leader.wanted(job, JobState.RUNNING)], epoch=old.epoch, now=NOW)
        )
        taking = pool.submit(other.leases.acquire, "new", ttl_s=3600.0, now=NOW + 10)
        waits = is_blocked(taking)
        written = late.go_on()
        new = taking.result(PATIENCE_S)
    assert new is not None
    assert waits, "the new leader was there before the old one had written"
    assert [moved.state for moved in written] == [JobState.RUNNING]
    with pytest.raises(LeaseLost):
        one.jobs.apply([leader.wanted(written[0], JobState.SUCCEEDED)], epoch=old.epoch, now=NOW)
    assert other.jobs.get("job").state is JobState.RUNNING


def test_two_that_want_the_lease_at_once_never_both_get_it(one: Store, other: Store) -> None:
    for number in range(ROUNDS):
        with threads() as pool:
            tries = [
                pool.submit(store.leases.acquire, f"{name}-{number}", ttl_s=3600.0, now=NOW)
                for name, store in (("one", one), ("other", other))
            ]
            got = [lease for each in tries if (lease := each.result(PATIENCE_S)) is not None]
        assert len(got) == 1
        assert got[0].epoch == number + 1
        one.leases.release(got[0])


def test_a_lower_number_never_becomes_visible_after_a_higher_one(one: Store, other: Store) -> None:
    with threads() as pool:
        # It has its number, and has not yet written what every change writes.
        slow = PausedCommit(pool, lambda: one.jobs.add([("slow", a_spec())], now=NOW), before="UPDATE meta")
        quick = pool.submit(other.jobs.add, [("quick", a_spec())], now=NOW)
        is_blocked(quick)
        early = [job for job, _ in other.queue.arrivals(after=0, limit=10)]
        after = max((job.seq for job in early), default=0)
        last_event = max((each.id for each in other.history.events()), default=0)
        seen_events = {each.submission_id for each in other.history.events()}
        slow.go_on()
        quick.result(PATIENCE_S)
    late = [job for job, _ in other.queue.arrivals(after=after, limit=10)]
    assert {job.submission_id for job in (*early, *late)} == {"slow", "quick"}
    seen_events |= {each.submission_id for each in other.history.events(after=last_event)}
    assert seen_events == {"slow", "quick"}


def test_a_job_that_ends_while_it_is_stopped_has_one_end(one: Store, other: Store) -> None:
    leader = Leader(one)
    job = leader.add("job", JobState.RUNNING)
    with threads() as pool:
        ending = PausedCommit(pool, lambda: leader.apply(leader.wanted(job, JobState.SUCCEEDED)))
        stopping = pool.submit(other.jobs.request_stop, ["job"], now=NOW, reason="stopped by ann")
        is_blocked(stopping)
        ending.go_on()
        (answer,) = stopping.result(PATIENCE_S)
    ended = one.jobs.get("job")
    assert (ended.state, ended.target, ended.reason) == (JobState.SUCCEEDED, Target.FINISHED, "to SUCCEEDED")
    assert answer.state is JobState.SUCCEEDED
    assert [each.reason for each in one.history.events("job")][-1] == "to SUCCEEDED"


def test_a_stop_is_not_overwritten_by_a_move_at_the_same_time(one: Store, other: Store) -> None:
    leader = Leader(one)
    job = leader.add("job", JobState.SUBMITTED)
    with threads() as pool:
        stopping = PausedCommit(
            pool, lambda: other.jobs.request_stop(["job"], now=NOW, reason="stopped by ann")
        )
        moving = pool.submit(leader.apply, leader.wanted(job, JobState.RUNNING), known={"job": job})
        is_blocked(moving)
        stopping.go_on()
        moving.result(PATIENCE_S)
    assert one.jobs.get("job").target is Target.STOPPED


def test_the_same_id_twice_at_once_is_one_job(one: Store, other: Store) -> None:
    for number in range(ROUNDS):
        with threads() as pool:
            calls = [
                pool.submit(store.jobs.add, [(f"job-{number}", a_spec())], now=NOW)
                for store in (one, other, one, other)
            ]
            wait(calls, PATIENCE_S)
        refused = [call.exception() for call in calls if call.exception() is not None]
        assert len(refused) == 3
        assert all(isinstance(each, DuplicateSubmission) for each in refused)
    assert len(one.jobs.list()) == ROUNDS


def test_a_child_of_a_job_that_succeeds_at_this_moment_does_not_wait(one: Store, other: Store) -> None:
    leader = Leader(one)
    parent = leader.add("parent", JobState.SUBMITTED)
    with threads() as pool:
        ending = PausedCommit(pool, lambda: leader.apply(leader.wanted(parent, JobState.SUCCEEDED)))
        adding = pool.submit(other.jobs.add, [("child", a_spec(depends_on=("parent",)))], now=NOW)
        is_blocked(adding)
        ending.go_on()
        adding.result(PATIENCE_S)
    assert [job.submission_id for job in one.queue.runnable(now=NOW)] == ["child"]


def test_a_child_of_a_job_that_fails_at_this_moment_is_told(one: Store, other: Store) -> None:
    leader = Leader(one)
    parent = leader.add("parent", JobState.SUBMITTED)
    with threads() as pool:
        ending = PausedCommit(pool, lambda: leader.apply(leader.wanted(parent, JobState.FAILED)))
        adding = pool.submit(other.jobs.add, [("child", a_spec(depends_on=("parent",)))], now=NOW)
        is_blocked(adding)
        ending.go_on()
        adding.result(PATIENCE_S)
    assert [job.submission_id for job, _ in one.queue.blocked(now=NOW)] == ["child"]
