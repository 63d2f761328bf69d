"""A log that is followed: whoever reads slowly makes the reading of the cluster wait, and misses nothing."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from tests.support.builders import a_cluster
from tests.support.leader import Leader

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.errors import ClusterUnreachable, JobNotFound
from ray_multicluster_scheduler.executors.contract import ExecutorKind
from ray_multicluster_scheduler.executors.registry import Executors, Registry
from ray_multicluster_scheduler.model.execution import DEFAULT_EXECUTOR, ORDINARY
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.ray_api import HttpConnection
from ray_multicluster_scheduler.service.events import EventHub
from ray_multicluster_scheduler.service.logs import MOST_PIPED_CHARS, PIECE_CHARS, LogPipe, Tails
from ray_multicluster_scheduler.store import Store, open_memory_store

S = JobState
PIECE = 2**16


class Chatty:
    """A cluster whose job writes without an end."""

    def __init__(self) -> None:
        self.read = 0

    async def follow_log(self, _: str) -> AsyncIterator[str]:
        while True:
            await asyncio.sleep(0)
            self.read += 1
            yield _piece(self.read)

    async def log(self, _: str) -> str:
        return "".join(_piece(number) for number in range(1, self.read + 3))


def _piece(number: int) -> str:
    return f"{number:>{PIECE}}"


class Ended:
    """A cluster that has the long log of a job that has ended."""

    text = "".join(f"{number:>99}\n" for number in range(80_000))

    def __init__(self, *, refuses: bool = False) -> None:
        self.read = 0
        self._refuses = refuses

    async def log(self, _: str) -> str:
        self.read += 1
        await asyncio.sleep(0)
        if self._refuses:
            raise ClusterUnreachable("a", "nobody there")
        return self.text


class Broken:
    """A cluster whose answer is a bug of ours."""

    async def follow_log(self, _: str) -> AsyncIterator[str]:
        raise ZeroDivisionError("a bug")
        yield ""


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_memory_store()
    yield opened
    opened.close()


@pytest.fixture
def hub(store: Store) -> Iterator[EventHub]:
    opened = EventHub(store, SystemClock())
    yield opened
    opened.close()


def tails(executor: Any, hub: EventHub, store: Store) -> Tails:
    """Follow the logs of an executor on the cluster `a`, on the test's own loop."""
    loop, connection = asyncio.get_running_loop(), HttpConnection(a_cluster("a"))
    kind = ExecutorKind(name=DEFAULT_EXECUTOR, can=ORDINARY, open=lambda _: executor)
    return Tails(
        lambda function: asyncio.run_coroutine_threadsafe(function({"a": connection}), loop),
        Executors(store, SystemClock(), registry=Registry([kind])),
        hub,
        store,
    )


async def stands_still(cluster: Chatty) -> int:
    """Return how much was read when no more is read for many turns of the loop."""
    seen = -1
    while seen != cluster.read:
        seen = cluster.read
        for _ in range(200):
            await asyncio.sleep(0)
    return seen


async def test_a_slow_reader_makes_the_cluster_wait_and_misses_nothing(store: Store, hub: EventHub) -> None:
    leader, cluster = Leader(store), Chatty()
    leader.add("job", S.RUNNING)
    async with aclosing(tails(cluster, hub, store).tail_async("job")) as pieces:
        assert int(await anext(pieces)) == 1
        held = await stands_still(cluster)
        assert held * PIECE <= MOST_PIPED_CHARS + 2 * PIECE
        for number in range(2, 3 * held):
            assert int(await anext(pieces)) == number
        assert await stands_still(cluster) > held


async def test_a_job_that_ends_while_its_reader_is_slow_ends_the_tail(store: Store, hub: EventHub) -> None:
    leader, cluster = Leader(store), Chatty()
    leader.add("job", S.RUNNING)
    async with aclosing(tails(cluster, hub, store).tail_async("job")) as pieces:
        text = await anext(pieces)
        await stands_still(cluster)
        leader.move("job", S.STOPPED)
        text += "".join([piece async for piece in pieces])
        assert text == await cluster.log("job")


async def test_a_reader_in_a_thread_is_waited_for_as_well(store: Store, hub: EventHub) -> None:
    leader, cluster = Leader(store), Chatty()
    leader.add("job", S.RUNNING)
    pieces = tails(cluster, hub, store).tail("job")
    assert int(await asyncio.to_thread(next, pieces)) == 1
    assert await stands_still(cluster) * PIECE <= MOST_PIPED_CHARS + 2 * PIECE
    assert int(await asyncio.to_thread(next, pieces)) == 2
    await asyncio.to_thread(pieces.close)  # type: ignore[attr-defined]


async def test_the_long_log_of_an_ended_job_is_read_once_for_all_and_comes_in_pieces(
    store: Store, hub: EventHub
) -> None:
    leader, cluster = Leader(store), Ended()
    leader.add("job", S.RUNNING)
    leader.move("job", S.STOPPED)
    followed = tails(cluster, hub, store)
    async with aclosing(followed.tail_async("job")) as slow:
        first = await anext(slow)
        assert len(first) <= PIECE_CHARS

        async def whole() -> str:
            return "".join([piece async for piece in followed.tail_async("job")])

        assert set(await asyncio.gather(*(whole() for _ in range(20)))) == {cluster.text}
        assert first + "".join([piece async for piece in slow]) == cluster.text
    assert cluster.read == 1
    assert not followed._logs._ended, "it is still in memory"


async def test_a_log_that_its_cluster_does_not_give_is_what_was_kept_for_all(
    store: Store, hub: EventHub
) -> None:
    leader, cluster = Leader(store), Ended(refuses=True)
    leader.add("job", S.RUNNING)
    leader.move("job", S.STOPPED)
    followed = tails(cluster, hub, store)
    for _ in range(2):
        assert [piece async for piece in followed.tail_async("job")] == []
    assert cluster.read == 2


async def test_a_bug_ends_the_tail_with_its_error(store: Store, hub: EventHub) -> None:
    Leader(store).add("job", S.RUNNING)
    async with aclosing(tails(Broken(), hub, store).tail_async("job")) as pieces:
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await anext(pieces)


async def test_an_unknown_job_has_no_log(store: Store, hub: EventHub) -> None:
    async with aclosing(tails(Chatty(), hub, store).tail_async("job")) as pieces:
        with pytest.raises(JobNotFound):
            await anext(pieces)


async def test_a_writer_whose_loop_is_closed_is_no_trouble_for_who_reads() -> None:
    pieces: list[str] = []
    pipe = LogPipe(pieces.append)

    def write() -> None:
        async def until_full() -> None:
            pipe.put("x" * MOST_PIPED_CHARS)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(pipe.room(), 0.001)

        asyncio.run(until_full())

    await asyncio.to_thread(write)
    pipe.taken(pieces[0])
    await pipe.room()
