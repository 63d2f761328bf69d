"""Calls wait for the creation of their actor and the release for the calls, however Ray delivers them."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.exceptions import RayActorError

from ray_multicluster_scheduler.tasks.wire.bridge import ActorOrder, CallerOrder


async def create(order: ActorOrder, sent: list[str]) -> None:
    with order.creation():
        await asyncio.sleep(0)
    sent.append("create")


async def call(order: ActorOrder, sent: list[str], number: int, *, ordered: bool) -> None:
    async with order.call(("caller", number) if ordered else None):
        await asyncio.sleep(0)
        sent.append(f"call {number}")


async def release(order: ActorOrder, sent: list[str], calls: int) -> None:
    assert await order.all_sent(calls)
    sent.append("release")


@given(arrival=st.permutations(["create", 0, 1, 2, "release"]), ordered=st.booleans())
def test_whatever_overtakes_the_creation_is_first_and_the_release_last(
    arrival: list[str | int], ordered: bool
) -> None:
    async def run() -> list[str]:
        order, sent = ActorOrder(), list[str]()
        await asyncio.gather(
            *(
                create(order, sent)
                if each == "create"
                else release(order, sent, calls=3)
                if each == "release"
                else call(order, sent, int(each), ordered=ordered)
                for each in arrival
            )
        )
        return sent

    sent = asyncio.run(run())
    assert [sent[0], sent[-1]] == ["create", "release"]
    calls = ["call 0", "call 1", "call 2"]
    assert (sent[1:-1] if ordered else sorted(sent[1:-1])) == calls


async def test_calls_of_an_actor_that_could_not_be_created_say_why() -> None:
    order = ActorOrder()
    waiting = asyncio.create_task(call(order, [], 0, ordered=True))
    with pytest.raises(TypeError), order.creation():
        raise TypeError("not this argument")
    with pytest.raises(RayActorError, match="not this argument"):
        await waiting


async def test_the_release_does_not_wait_for_ever_for_a_call_that_was_cancelled_on_its_way() -> None:
    order, sent = ActorOrder(late_s=0.01), list[str]()
    await create(order, sent)
    await call(order, sent, 0, ordered=False)
    assert await order.all_sent(calls=2) is False


async def test_the_release_waits_as_long_as_it_takes_for_a_call_that_waits_for_its_arguments() -> None:
    order, sent, arguments = ActorOrder(late_s=0.01), list[str](), asyncio.Event()
    await create(order, sent)

    async def slow() -> None:
        async with order.call(None):
            await arguments.wait()
            sent.append("slow")

    calling = asyncio.create_task(slow())
    releasing = asyncio.create_task(release(order, sent, calls=1))
    await asyncio.wait([releasing], timeout=0.1)
    arguments.set()
    await asyncio.gather(calling, releasing)
    assert sent == ["create", "slow", "release"]


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


async def test_a_call_whose_turn_comes_as_it_is_cancelled_is_cancelled() -> None:
    order, sent = ActorOrder(), list[str]()
    await create(order, sent)
    later = asyncio.create_task(call(order, sent, 1, ordered=True))
    await asyncio.sleep(0.001)
    await call(order, sent, 0, ordered=True)
    await asyncio.sleep(0)  # the waiter is done, the call has not heard of it yet
    later.cancel()
    with pytest.raises(asyncio.CancelledError):
        await later
    assert sent == ["create", "call 0"]


async def test_a_release_that_is_cancelled_as_a_call_is_sent_is_cancelled() -> None:
    order, sent = ActorOrder(), list[str]()
    await create(order, sent)
    waiting = asyncio.create_task(release(order, sent, calls=1))
    await asyncio.sleep(0.001)
    await call(order, sent, 0, ordered=False)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
