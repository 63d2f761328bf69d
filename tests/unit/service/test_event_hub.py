"""The event hub: one reader tells everybody who waits, once for each change, and of none too late."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.support.builders import NOW, a_spec
from tests.support.clock import ManualClock
from tests.support.leader import Leader

from ray_multicluster_scheduler.errors import SchedulerError, StoreBusy, StoreError
from ray_multicluster_scheduler.model.job import Job, Target
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.model.storage import Keep
from ray_multicluster_scheduler.service.events import LOOK_AT_ALL_S, EventHub, Subscription
from ray_multicluster_scheduler.store import Store

S = JobState
MANY = 2000
NOTHING = Keep(jobs_s=0, logs_s=0, secrets_s=0, audit_s=0, jobs=0, audit=0, size_bytes=0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hub(store: Store, clock: ManualClock) -> Iterator[EventHub]:
    opened = EventHub(store, clock)
    yield opened
    opened.close()


def stop(store: Store, *ids: str) -> None:
    store.jobs.request_stop(ids, now=NOW, reason="enough")


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "raymc-hub"]


def told(subscription: Subscription) -> dict[str, Job | None]:
    """Wait until something has changed."""
    while not (changed := subscription.wait()):
        pass
    return dict(changed)


def settle(hub: EventHub, job: str) -> None:
    """Return when all that was committed before has been told: who comes now is told after that."""
    with hub.subscribe([job]) as fence:
        fence.wait()


def test_the_first_answer_has_all_jobs_and_later_ones_what_has_changed(
    store: Store, leader: Leader, hub: EventHub
) -> None:
    leader.add("a"), leader.add("b")
    with hub.subscribe(["a", "b", "unknown"]) as subscription:
        first = subscription.wait()
        assert {name: job and job.state for name, job in first.items()} == {
            "a": S.QUEUED,
            "b": S.QUEUED,
            "unknown": None,
        }
        leader.add("another")
        leader.move("b", S.PLACED)
        assert told(subscription) == {"b": store.jobs.get("b")}
        assert subscription.wait(0) == {}


def test_who_looks_late_gets_one_row_for_each_job_the_newest(
    store: Store, leader: Leader, hub: EventHub
) -> None:
    leader.add("a")
    with hub.subscribe(["a"]) as subscription:
        subscription.wait()
        for state in (S.PLACED, S.SUBMITTED, S.RUNNING):
            leader.move("a", state)
            settle(hub, "a")
        assert subscription.wait() == {"a": store.jobs.get("a")}
        assert subscription.wait(0) == {}


def test_a_job_that_has_ended_is_watched_no_more(leader: Leader, hub: EventHub) -> None:
    leader.add("a")
    with hub.subscribe(["a"]) as subscription:
        subscription.wait()
        leader.move("a", S.STOPPED)
        assert told(subscription)["a"]
        assert hub._watchers == {}


def test_thousands_of_waiters_cost_one_thread_and_a_few_queries(
    store: Store, hub: EventHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"job-{number}" for number in range(MANY)]
    store.jobs.add([(each, a_spec()) for each in ids], now=NOW)
    queries: list[str] = []
    for part, names in ((store.jobs, ("get_many", "get")), (store.history, ("changed_since", "events"))):
        for name in names:
            monkeypatch.setattr(part, name, counted(getattr(part, name), queries))
    waiters = [hub.subscribe([each]) for each in ids]
    for waiter, each in zip(waiters, ids, strict=True):
        assert waiter.wait().keys() == {each}
    queries.clear()

    stop(store, *ids)

    for waiter, each in zip(waiters, ids, strict=True):
        job = told(waiter)[each]
        assert job is not None
        assert job.target is Target.STOPPED
    assert len(readers()) == 1
    assert len(queries) <= 4
    for waiter in waiters:
        waiter.close()


def counted(call: Any, calls: list[str]) -> Any:
    def counting(*args: Any, **options: Any) -> Any:
        calls.append(call.__name__)
        return call(*args, **options)

    return counting


def test_the_reader_comes_with_the_first_and_goes_with_the_last(leader: Leader, hub: EventHub) -> None:
    leader.add("a")
    assert readers() == []
    for _ in range(3):
        one, other = hub.subscribe(["a"]), hub.subscribe(None)
        one.wait(), other.wait()
        (reader,) = readers()
        one.close()
        other.close()
        reader.join()


class Trouble:
    """Lets reads fail."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: Exception | None = None
        self.met = threading.Event()
        self._read = store.history.changed_since
        monkeypatch.setattr(store.history, "changed_since", self.changed_since)

    def changed_since(self, *args: Any, **options: Any) -> Any:
        if self.error is not None:
            self.met.set()
            raise self.error
        return self._read(*args, **options)


def test_who_waits_survives_a_busy_store_and_who_comes_is_told_of_it(
    store: Store, leader: Leader, hub: EventHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader.add("a")
    trouble = Trouble(store, monkeypatch)
    with hub.subscribe(["a"]) as patient:
        patient.wait()
        trouble.error = StoreBusy("busy")
        stop(store, "a")
        trouble.met.wait()
        with hub.subscribe(["a"]) as newcomer, pytest.raises(StoreBusy, match="busy"):
            newcomer.wait()
        assert patient.wait(0) == {}
        trouble.error = None
        assert told(patient)["a"] == store.jobs.get("a")


def test_a_bug_in_the_reader_is_raised_where_it_is_waited_and_the_next_one_starts_anew(
    store: Store, leader: Leader, hub: EventHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader.add("a")
    seen: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    trouble = Trouble(store, monkeypatch)
    trouble.error = ZeroDivisionError("a bug")
    waiters = [hub.subscribe(["a"]), hub.subscribe(["a"])]
    for waiter in waiters:
        with pytest.raises(SchedulerError, match="ZeroDivisionError: a bug"):
            waiter.wait()
    for reader in readers():
        reader.join()
    assert seen
    trouble.error = None
    with hub.subscribe(["a"]) as again:
        assert again.wait() == {"a": store.jobs.get("a")}


def raised_by(wait: Any) -> StoreError:
    with pytest.raises(StoreError) as caught:
        wait()
    return caught.value


def test_a_closed_store_wakes_and_refuses(store: Store, leader: Leader, hub: EventHub) -> None:
    leader.add("a")
    one, all_events = hub.subscribe(["a"]), hub.subscribe(None)
    one.wait(), all_events.wait()
    store.close()
    errors = [raised_by(each.wait) for each in (one, all_events)]
    assert ["closed" in str(error) for error in errors] == [True, True]
    assert errors[0] is not errors[1]  # each thread has its own traceback
    with hub.subscribe(["a"]) as late:
        assert "closed" in str(raised_by(late.wait))


def test_a_closed_hub_wakes_and_refuses(leader: Leader, hub: EventHub) -> None:
    leader.add("a")
    waiter = hub.subscribe(["a"])
    waiter.wait()
    hub.close()
    assert readers() == []
    assert "was stopped" in str(raised_by(waiter.wait))
    with pytest.raises(StoreError, match="was stopped"):
        hub.subscribe(["a"])


def test_a_job_that_was_removed_before_its_end_was_told_is_told_as_removed(
    store: Store, leader: Leader, hub: EventHub, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a long sleep of the process: its events are gone, and no notification has come."""
    leader.add("gone"), leader.add("other"), leader.add("third")
    with hub.subscribe(["gone"]) as subscription, hub.subscribe(["other"]) as other:
        subscription.wait(), other.wait()
        monkeypatch.setattr(store._transactions, "notify", lambda: None)
        asleep, changed_since = threading.Lock(), store.history.changed_since

        def when_awake(watched: Sequence[str], *, after: int) -> tuple[int, frozenset[str]]:
            with asleep:
                return changed_since(watched, after=after)

        with asleep:
            monkeypatch.setattr(store.history, "changed_since", when_awake)
            leader.move("gone", S.STOPPED)
            while store.retention.prune(NOTHING, now=NOW + 1, limit=10, epoch=leader.lease.epoch).more:
                pass
        settle(hub, "third")
        assert subscription.wait(0) == {}
        clock.advance(LOOK_AT_ALL_S)
        settle(hub, "third")
        assert subscription.wait() == {"gone": None}
        assert other.wait(0) == {}


async def test_a_coroutine_is_told_and_no_thread_waits(store: Store, leader: Leader, hub: EventHub) -> None:
    leader.add("a")
    before = threading.active_count()
    subscriptions = [hub.subscribe_async(["a"]) for _ in range(100)]
    for each in subscriptions:
        assert await each.wait() == {"a": store.jobs.get("a")}
    assert await subscriptions[0].wait(0.001) == {}
    waits = [asyncio.create_task(each.wait()) for each in subscriptions]
    await asyncio.sleep(0)
    assert threading.active_count() - before <= 1
    stop(store, "a")
    assert await asyncio.gather(*waits) == [{"a": store.jobs.get("a")}] * 100
    for each in subscriptions:
        each.close()


def test_a_subscriber_whose_event_loop_is_closed_does_not_harm_the_others(
    store: Store, leader: Leader, hub: EventHub
) -> None:
    leader.add("a")

    async def come_and_forget() -> Any:
        subscription = hub.subscribe_async(["a"])
        await subscription.wait()
        return subscription

    with hub.subscribe(["a"]) as subscription:
        subscription.wait()
        forgotten = asyncio.run(come_and_forget())
        stop(store, "a")
        assert told(subscription)
        settle(hub, "a")
        assert forgotten not in hub._subscribers
