"""Calls of one handle go through in their order, and nobody waits for one that will never come."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.tasks.wire.turns import CallerOrder


async def go(
    order: CallerOrder, number: int, through: list[int], *, holds: asyncio.Event | None = None
) -> None:
    async with order.in_order(number):
        if holds is not None:
            await holds.wait()
        through.append(number)


@given(st.permutations(range(8)))
def test_calls_that_arrive_in_any_order_go_through_in_their_own(arrival: list[int]) -> None:
    async def run() -> list[int]:
        order, through = CallerOrder(), list[int]()
        await asyncio.gather(*(go(order, number, through) for number in arrival))
        return through

    assert asyncio.run(run()) == list(range(8))


async def test_a_call_that_is_held_up_holds_up_the_later_ones_and_no_earlier_one() -> None:
    order, through, holds = CallerOrder(gap_s=0.01), list[int](), asyncio.Event()
    calls = [
        asyncio.create_task(go(order, number, through, holds=holds if number == 1 else None))
        for number in (2, 1, 0)
    ]
    await asyncio.wait(calls, timeout=0.1)
    assert through == [0]
    holds.set()
    await asyncio.gather(*calls)
    assert through == [0, 1, 2]


async def test_a_call_that_was_cancelled_on_its_way_is_skipped() -> None:
    order, through = CallerOrder(gap_s=0.01), list[int]()
    await asyncio.gather(*(go(order, number, through) for number in (0, 3, 2, 5)))
    assert through == [0, 2, 3, 5]


async def test_a_call_that_comes_after_it_was_skipped_goes_through_at_once() -> None:
    order, through = CallerOrder(gap_s=0.01), list[int]()
    await go(order, 1, through)
    await go(order, 0, through)
    await go(order, 2, through)
    assert through == [1, 0, 2]


async def test_a_call_that_is_cancelled_while_it_waits_lets_the_others_go_on() -> None:
    order, through, holds = CallerOrder(gap_s=60), list[int](), asyncio.Event()
    first = asyncio.create_task(go(order, 0, through, holds=holds))
    second = asyncio.create_task(go(order, 1, through))
    third = asyncio.create_task(go(order, 2, through))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    holds.set()
    await asyncio.gather(first, third)
    assert through == [0, 2]
