"""Tasks that write at the same moment share one call."""

import asyncio
from collections.abc import Sequence

import pytest

from ray_multicluster_scheduler.engine.batch import Batch
from ray_multicluster_scheduler.errors import InvalidRequest, StoreBusy

Item = tuple[str, int]


class Disk:
    """Writes one call at a time, each when it is told to."""

    def __init__(self) -> None:
        self.calls: list[list[Item]] = []
        self.go_on = asyncio.Semaphore(0)

    async def write(self, items: Sequence[Item]) -> list[int]:
        self.calls.append(list(items))
        await self.go_on.acquire()
        if ("bad", 0) in items:
            raise StoreBusy("the disk is full")
        if ("odd", 0) in items:
            raise InvalidRequest("this value cannot be stored")
        return [number * 10 for _, number in items]


def batch_on(disk: Disk) -> Batch[Item, int]:
    return Batch(disk.write, keys=lambda item: {item[0]})


async def begun(batch: Batch[Item, int], *items: Item) -> list["asyncio.Task[int]"]:
    tasks = [asyncio.ensure_future(batch(item)) for item in items]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


async def test_what_comes_during_a_write_is_written_together() -> None:
    disk = Disk()
    batch = batch_on(disk)
    first = await begun(batch, ("a", 1))
    others = await begun(batch, ("b", 2), ("c", 3))
    disk.go_on.release()
    disk.go_on.release()
    assert await asyncio.gather(*first, *others) == [10, 20, 30]
    assert disk.calls == [[("a", 1)], [("b", 2), ("c", 3)]]


async def test_two_writes_about_one_thing_never_share_a_call() -> None:
    disk = Disk()
    batch = batch_on(disk)
    tasks = await begun(batch, ("a", 1))
    tasks += await begun(batch, ("b", 2), ("b", 3), ("c", 4))
    for _ in range(3):
        disk.go_on.release()
    assert await asyncio.gather(*tasks) == [10, 20, 30, 40]
    assert disk.calls == [[("a", 1)], [("b", 2)], [("b", 3), ("c", 4)]]


async def test_an_error_reaches_everybody_of_the_call_and_the_next_call_goes_on() -> None:
    disk = Disk()
    batch = batch_on(disk)
    tasks = await begun(batch, ("bad", 0), ("a", 1))
    later = await begun(batch, ("b", 2))
    disk.go_on.release()
    disk.go_on.release()
    for task in tasks:
        with pytest.raises(StoreBusy, match="full"):
            await task
    assert await later[0] == 20


async def test_a_value_that_cannot_be_written_is_the_concern_of_its_own_caller_only() -> None:
    disk = Disk()
    batch = batch_on(disk)
    tasks = await begun(batch, ("a", 1))
    tasks += await begun(batch, ("b", 2), ("odd", 0), ("c", 3))
    for _ in range(5):
        disk.go_on.release()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(each) for each in done] == ["10", "20", "this value cannot be stored", "30"]


async def test_a_caller_who_is_gone_does_not_stop_the_write_of_the_others() -> None:
    disk = Disk()
    batch = batch_on(disk)
    gone, stays = await begun(batch, ("a", 1), ("b", 2))
    gone.cancel()
    disk.go_on.release()
    assert await stays == 20
    await batch.close()
