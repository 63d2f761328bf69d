"""Waiting that can be ended."""

import asyncio

import pytest

from ray_multicluster_scheduler.asyncio_tools import Background, repeat, unless, wait_for


async def test_an_event_and_the_end_of_the_time_are_told_apart() -> None:
    event = asyncio.Event()
    assert not await wait_for(event, 0.0)
    event.set()
    assert await wait_for(event, 60.0)


async def test_work_goes_on_unless_an_event_is_set() -> None:
    event, ended = asyncio.Event(), []

    async def work(duration_s: float) -> str:
        try:
            await asyncio.sleep(duration_s)
        finally:
            ended.append(duration_s)
        return "done"

    assert await unless(event, work(0.0)) == "done"
    event.set()
    assert await unless(event, work(60.0)) is None
    assert ended == [0.0, 60.0]


async def test_a_loop_that_is_woken_and_cancelled_in_the_same_moment_ends() -> None:
    wake, steps = asyncio.Event(), 0

    async def step() -> None:
        nonlocal steps
        steps += 1
        assert steps < 10, "it goes on for ever"

    loop = asyncio.create_task(repeat(step, wake, lambda: 0.01))
    await asyncio.sleep(0.001)
    wake.set()
    await asyncio.sleep(0)  # the waiter is done, the loop has not heard of it yet
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop


async def test_the_first_failure_in_the_background_is_raised_and_the_rest_is_cancelled() -> None:
    background, ended = Background(), []

    async def fails() -> None:
        raise KeyError("a bug")

    async def goes_on() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cancelled")

    background.start(goes_on())
    background.start(fails())
    with pytest.raises(KeyError, match="a bug"):
        await background.run()
    await background.close()
    assert ended == ["cancelled"]


async def test_what_is_under_way_may_end_by_itself_before_it_is_cancelled() -> None:
    background, ended = Background(), []

    async def work(duration_s: float) -> None:
        await asyncio.sleep(duration_s)
        ended.append(duration_s)

    background.start(work(0.01))
    await background.close(grace_s=60.0)
    assert ended == [0.01]
    background.start(work(60.0))
    await background.close(grace_s=0.01)
    assert ended == [0.01]
