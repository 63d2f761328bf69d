"""Readers of one log share a connection; none waits for a slow one, and each gets every character once."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.errors import ClusterUnreachable
from ray_multicluster_scheduler.executors.contract import Executor
from ray_multicluster_scheduler.model.execution import AttemptStatus, Sighting
from ray_multicluster_scheduler.service.logs import KEPT_CHARS, MOST_CHARS, SHORT_CHARS, SharedLogs

LENGTHS = [1, 9, SHORT_CHARS, KEPT_CHARS, MOST_CHARS]


class Cluster:
    """Sends one log, from its beginning to everybody; `grow` makes it longer, `cut` ends all connections."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.opened = self.open = self.asked = 0
        self.status, self.closes = AttemptStatus.RUNNING, False
        self._grown, self._cuts = asyncio.Event(), 0

    @property
    def log(self) -> str:
        return "".join(self.pieces)

    def grow(self, *pieces: str) -> None:
        self.pieces += pieces
        self._wake()

    def cut(self) -> None:
        self._cuts += 1
        self._wake()

    def end(self, status: AttemptStatus) -> None:
        """Close all connections properly, as Ray does when a job has ended, or its node."""
        self.status, self.closes = status, True
        self._wake()

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()

    async def follow_log(self, remote_id: str) -> AsyncGenerator[str, None]:
        assert remote_id == "job"
        cuts, sent = self._cuts, 0
        self.opened += 1
        self.open += 1
        try:
            while True:
                if self._cuts > cuts:
                    raise ClusterUnreachable("a", "cut off")
                if sent < len(self.pieces):
                    sent += 1
                    yield self.pieces[sent - 1]
                elif self.closes:
                    return
                else:
                    await self._grown.wait()
        finally:
            self.open -= 1

    async def get(self, remote_id: str) -> Sighting:
        self.asked += 1
        return Sighting(remote_id=remote_id, status=self.status)


class Reader:
    """Reads when it is told to."""

    def __init__(self, logs: SharedLogs, cluster: Any, place: int = 0) -> None:
        self.pieces = logs.pieces(cast(Executor, cluster), "job", place)
        self.text = ""

    async def read_to(self, length: int) -> str:
        while len(self.text) < length:
            self.text += await anext(self.pieces)
        return self.text


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.fixture
async def readers() -> AsyncIterator[Any]:
    logs = SharedLogs()
    async with AsyncExitStack() as stack:

        async def reader(cluster: Cluster, place: int = 0) -> Reader:
            made = Reader(logs, cluster, place)
            await stack.enter_async_context(aclosing(made.pieces))
            return made

        yield reader
    await settled()
    assert not logs._readings, "something was left open"


async def test_all_readers_share_a_connection_and_get_all(readers: Any) -> None:
    cluster = Cluster()
    cluster.grow("one\n", "two\n")
    found = [await readers(cluster) for _ in range(50)]
    waiting = [asyncio.create_task(each.read_to(14)) for each in found]
    await settled()
    cluster.grow("three\n")
    assert await asyncio.gather(*waiting) == ["one\ntwo\nthree\n"] * 50
    late = await readers(cluster)
    assert await late.read_to(14) == cluster.log
    assert cluster.opened == 1


async def test_the_log_of_a_job_that_has_ended_is_not_read_again_until_the_store_knows(readers: Any) -> None:
    cluster = Cluster()
    cluster.grow("one\n")
    found = [await readers(cluster) for _ in range(50)]
    waiting = [asyncio.create_task(each.read_to(9)) for each in found]
    await settled()
    cluster.grow("two\n")
    cluster.end(AttemptStatus.SUCCEEDED)
    await settled()
    assert [each.text for each in found] == ["one\ntwo\n"] * 50
    assert not [each for each in waiting if each.done()]  # whoever is told that it broke off connects again
    late = await readers(cluster)
    assert await late.read_to(8) == cluster.log
    assert (cluster.opened, cluster.asked) == (1, 1)
    for each in waiting:
        each.cancel()


async def test_a_log_that_was_closed_although_its_job_runs_broke_off(readers: Any) -> None:
    cluster = Cluster()
    cluster.grow("one\n")
    reader = await readers(cluster)
    await reader.read_to(4)
    cluster.end(AttemptStatus.RUNNING)
    with pytest.raises(StopAsyncIteration):
        await reader.read_to(5)


async def test_the_connection_goes_with_the_last_reader(readers: Any) -> None:
    cluster = Cluster()
    cluster.grow("one\n")
    first, second = await readers(cluster), await readers(cluster)
    await first.read_to(4)
    await second.read_to(4)
    waits = asyncio.create_task(second.read_to(8))
    await settled()
    await first.pieces.aclose()
    await settled()
    assert cluster.open == 1
    waits.cancel()
    await settled()
    assert cluster.open == 0


async def test_a_slow_reader_does_not_slow_the_others_and_misses_nothing(readers: Any) -> None:
    cluster, piece = Cluster(), "x" * 20_000
    cluster.grow("begin")
    slow, fast, other = [await readers(cluster) for _ in range(3)]
    for each in (slow, fast, other):
        await each.read_to(5)
    cluster.grow(*(f"{number:>20000}" for number in range(MOST_CHARS // 20_000 + 50)))
    length = len(cluster.log)
    assert await fast.read_to(length) == cluster.log
    [[reading]] = fast.pieces.ag_frame.f_locals["self"]._readings.values()
    assert reading.end - reading.begin <= MOST_CHARS + 20_000
    assert cluster.opened == 1, "the slow one is no reason to read it again before that asks for more"
    assert await slow.read_to(length) == cluster.log
    assert cluster.opened == 2
    assert await other.read_to(length) == cluster.log
    cluster.grow(piece)
    for each in (slow, fast, other):
        assert await each.read_to(length + len(piece)) == cluster.log
    await settled()
    assert cluster.open == 1, "who has caught up shares again"


async def test_a_reader_that_is_not_far_behind_needs_no_connection_of_its_own(readers: Any) -> None:
    cluster = Cluster()
    cluster.grow(*("x" * 20_000 for _ in range(MOST_CHARS // 20_000 - 1)))
    slow, fast = await readers(cluster), await readers(cluster)
    await slow.read_to(1)
    await fast.read_to(len(cluster.log))
    assert await slow.read_to(len(cluster.log)) == cluster.log
    assert cluster.opened == 1


async def test_a_single_slow_reader_makes_the_cluster_wait(readers: Any) -> None:
    cluster = Cluster()
    cluster.grow("one\n", "two\n", "three\n")
    reader = await readers(cluster)
    await anext(reader.pieces)
    await settled()
    [[reading]] = reader.pieces.ag_frame.f_locals["self"]._readings.values()
    assert reading.end == 4


async def test_a_log_that_broke_off_ends_and_can_be_taken_up(readers: Any) -> None:
    cluster = Cluster()
    cluster.grow("one\n")
    found = [await readers(cluster) for _ in range(3)]
    for each in found:
        await each.read_to(4)
    cluster.cut()
    cluster.grow("two\n")
    for each in found:
        assert [piece async for piece in each.pieces] == []
    again = [await readers(cluster, 4) for _ in range(3)]
    for each in again:
        assert await each.read_to(4) == "two\n"
    assert cluster.opened == 2


async def test_crumbs_take_no_more_memory_than_large_pieces(readers: Any) -> None:
    cluster = Cluster()
    cluster.grow(*("ab" * 5_000), *("x" * 10_000 for _ in range(30)))
    reader = await readers(cluster)
    await reader.read_to(10_000)
    [[reading]] = reader.pieces.ag_frame.f_locals["self"]._readings.values()
    assert len(reading._kept) <= 10_000 // SHORT_CHARS + 2
    await reader.read_to(len(cluster.log))
    assert reading.end - reading.begin <= KEPT_CHARS + 10_000
    assert reader.text == cluster.log


@given(st.data())
def test_whatever_the_order_each_reader_gets_every_character_once(data: st.DataObject) -> None:
    async def play() -> None:
        logs, cluster, readers = SharedLogs(), Cluster(), list[Reader]()
        for step in range(data.draw(st.integers(1, 30))):
            match data.draw(st.sampled_from(["join", "read", "grow", "leave", "read", "grow"])):
                case "join":
                    readers.append(Reader(logs, cluster))
                case "grow":
                    cluster.grow(
                        f"{step:>{data.draw(st.sampled_from([1, 9, SHORT_CHARS, KEPT_CHARS, MOST_CHARS]))}}"
                    )
                case "read" if readers:
                    reader = data.draw(st.sampled_from(readers))
                    if len(reader.text) < len(cluster.log):
                        await reader.read_to(data.draw(st.integers(len(reader.text) + 1, len(cluster.log))))
                        assert cluster.log.startswith(reader.text)
                case "leave" if readers:
                    await readers.pop(data.draw(st.integers(0, len(readers) - 1))).pieces.aclose()
        for reader in readers:
            assert await reader.read_to(len(cluster.log)) == cluster.log
            await reader.pieces.aclose()
        await settled()
        assert cluster.open == 0
        assert not logs._readings

    asyncio.run(play())
