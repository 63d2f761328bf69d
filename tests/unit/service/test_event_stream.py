"""All events, each once and in order, from any of them on: old ones, then live ones, however slowly read."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from tests.support.builders import NOW, a_spec
from tests.support.leader import Leader

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service import events as hub_module
from ray_multicluster_scheduler.service.events import EventHub, EventWithJob, event_stream
from ray_multicluster_scheduler.store import Store

S = JobState
Stream = AsyncGenerator[tuple[EventWithJob, ...], None]


@pytest.fixture
def hub(store: Store) -> Iterator[EventHub]:
    opened = EventHub(store, SystemClock())
    yield opened
    opened.close()


async def ids(stream: Stream, count: int) -> list[int]:
    """Read so many events; return their ids."""
    found: list[int] = []
    while len(found) < count:
        found += [told.event.id for told in await anext(stream)]
    return found


async def test_old_events_come_first_and_then_what_happens(
    store: Store, leader: Leader, hub: EventHub
) -> None:
    leader.add("a", S.RUNNING)
    async with aclosing(event_stream(hub, 0)) as stream:
        assert await ids(stream, 4) == [1, 2, 3, 4]
        leader.move("a", S.SUCCEEDED)
        ((event, job),) = await anext(stream)
        assert (event.id, event.new) == (5, S.SUCCEEDED)
        assert job == store.jobs.get("a")


async def test_who_names_the_last_event_gets_what_follows_it(leader: Leader, hub: EventHub) -> None:
    leader.add("a", S.RUNNING)
    async with aclosing(event_stream(hub, 2)) as stream:
        assert await ids(stream, 2) == [3, 4]


@pytest.mark.parametrize("after", [None, 10**9])
async def test_without_a_known_last_event_it_begins_now(
    leader: Leader, hub: EventHub, after: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader.add("a", S.RUNNING)
    begun = threading.Event()
    last_event = hub.last_event
    monkeypatch.setattr(hub, "last_event", lambda: (last_event(), begun.set())[0])
    async with aclosing(event_stream(hub, after)) as stream:
        following = asyncio.create_task(ids(stream, 1))
        await asyncio.to_thread(begun.wait)
        leader.move("a", S.SUCCEEDED)
        assert await following == [5]


async def test_who_lags_goes_on_from_the_store_and_misses_nothing(
    store: Store, leader: Leader, hub: EventHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "KEPT_EVENTS", 5)
    monkeypatch.setattr(hub_module, "PAGE", 7)
    leader.add("first")
    async with aclosing(event_stream(hub, 0)) as stream:
        assert await ids(stream, 1) == [1]
        for number in range(40):
            leader.add(f"job-{number}")
        assert await ids(stream, 40) == list(range(2, 42))
        assert len(hub._kept) <= 5


async def test_removed_events_are_no_reason_to_stand_still(
    store: Store, leader: Leader, hub: EventHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the events of a position are gone, it goes on with those that are there."""
    leader.add("a", S.RUNNING)
    reads: list[int] = []
    read_after = hub.read_after
    monkeypatch.setattr(hub, "read_after", lambda after: reads.append(after) or read_after(after))
    monkeypatch.setattr(store.history, "last_event", lambda: 100)
    async with aclosing(event_stream(hub, 50)) as stream:
        following = asyncio.create_task(anext(stream))
        for _ in range(20):
            with hub.subscribe_async(["a"]) as fence:
                await fence.wait()
        assert not following.done()
        assert len(reads) <= 3
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following


async def test_a_hundred_streams_share_what_was_read(
    store: Store, leader: Leader, hub: EventHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader.add("a")
    reads: list[Any] = []
    streams = [event_stream(hub, 0) for _ in range(100)]
    for stream in streams:
        assert await ids(stream, 1) == [1]
    events = store.history.events
    monkeypatch.setattr(store.history, "events", lambda **options: reads.append(options) or events(**options))
    following = [asyncio.create_task(ids(stream, 1)) for stream in streams]
    store.jobs.add([("b", a_spec())], now=NOW)
    assert await asyncio.gather(*following) == [[2]] * 100
    assert len(reads) <= 2
    for stream in streams:
        await stream.aclose()
    assert hub._subscribers == set()


async def test_a_stream_ends_with_an_error_when_the_hub_is_closed(leader: Leader, hub: EventHub) -> None:
    leader.add("a")
    async with aclosing(event_stream(hub, None)) as stream:
        following = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)  # now it has subscribed
        await asyncio.to_thread(hub.close)
        with pytest.raises(StoreError, match="was stopped"):
            await following
