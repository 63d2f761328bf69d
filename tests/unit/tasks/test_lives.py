"""Calls wait for the creation of their actor and the release for the calls, however Ray delivers them."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.exceptions import RayActorError

from ray_multicluster_scheduler.tasks.wire.lives import ActorOrder


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
