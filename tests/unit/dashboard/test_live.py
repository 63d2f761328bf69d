"""Rounds of updates: they end when they are told to, and no page waits for another one."""

import asyncio
from typing import Any

import pytest

from ray_multicluster_scheduler.dashboard import live as module
from ray_multicluster_scheduler.dashboard.live import Live


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(module, "LEAST_GAP_S", 0.0)
    return Live(lambda: pytest.fail("asked"))


async def test_rounds_that_are_cancelled_as_something_happens_end(live: Any) -> None:
    telling = asyncio.create_task(live._tell())
    await asyncio.sleep(0.001)
    live._happened.set()
    await asyncio.sleep(0)  # the waiter is done, the loop has not heard of it yet
    telling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(telling, 10)


async def test_a_page_that_waits_for_its_answer_delays_no_other(live: Any) -> None:
    slow_began, answered, told = asyncio.Event(), asyncio.Event(), asyncio.Semaphore(0)
    refreshes = 0

    async def slow() -> None:
        nonlocal refreshes
        refreshes += 1
        slow_began.set()
        await answered.wait()

    async def fast() -> None:
        told.release()

    ends = [live.listen(slow), live.listen(fast)]
    telling = asyncio.create_task(live._tell())
    for _ in range(3):
        live._happened.set()
        await asyncio.wait_for(told.acquire(), 10)
    assert (slow_began.is_set(), refreshes) == (True, 1)
    slow_began.clear()
    answered.set()
    await asyncio.wait_for(slow_began.wait(), 10)  # it hears of what it has missed
    for end in ends:
        end()
    telling.cancel()


async def test_a_question_that_outlasts_a_round_is_asked_again_only_after_its_answer(live: Any) -> None:
    gates, running, most = [asyncio.Event() for _ in range(3)], 0, 0
    asked = 0

    async def ask() -> int:
        nonlocal asked, running, most
        number, asked, running = asked, asked + 1, running + 1
        most = max(most, running)
        await gates[number].wait()
        running -= 1
        return number

    answers = []
    for _ in range(2):
        answers += [asyncio.create_task(live.shared("jobs", ask)) for _ in range(3)]
        await asyncio.sleep(0)
        live.forget_answers()
    for gate in gates:
        gate.set()
    assert await asyncio.wait_for(asyncio.gather(*answers), 10) == [0, 0, 0, 1, 1, 1]
    assert most == 1
    assert live._under_way == {}


async def test_a_page_that_breaks_is_told_of_the_next_change(live: Any) -> None:
    told = asyncio.Semaphore(0)

    async def breaks() -> None:
        told.release()
        raise ValueError("this page is broken")

    end = live.listen(breaks)
    telling = asyncio.create_task(live._tell())
    for _ in range(2):
        live._happened.set()
        await asyncio.wait_for(told.acquire(), 10)
    end()
    telling.cancel()
