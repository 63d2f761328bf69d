"""How answers leave the hub: soon ones with the reply to their batch, late ones to whoever listens."""

import asyncio
from typing import Any

import pytest

from ray_multicluster_scheduler.bridge.wire import hub as hub_module
from ray_multicluster_scheduler.bridge.wire.hub import Hub


class Workshop(Hub):
    """A hub whose work ends when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.done = asyncio.Event()

    async def _slow(self, _number: int) -> list[Any]:
        await self.done.wait()
        return []


async def test_what_is_done_soon_comes_with_the_reply() -> None:
    assert await Hub().submit(0, [(7, "learn", "digest", b"code")]) == [(7, True, [])]


async def test_what_is_late_comes_to_the_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "SOON_S", 0.0)
    hub = Workshop()
    listening = asyncio.create_task(hub.take(60.0))
    assert await hub.submit(0, [(7, "slow")]) == []
    hub.done.set()
    assert await listening == [(7, True, [])]


async def test_a_reply_that_waits_gets_the_answer_before_the_listener_does() -> None:
    hub = Workshop()
    listening = asyncio.create_task(hub.take(60.0))
    await asyncio.sleep(0)
    hub.done.set()
    assert await hub.submit(0, [(7, "slow")]) == [(7, True, [])]
    assert not listening.done()
    listening.cancel()


async def test_batches_start_in_the_order_of_their_numbers() -> None:
    hub = Hub()
    second = asyncio.create_task(hub.submit(1, [(2, "learn", "b", b"")]))
    await asyncio.sleep(0)
    first = await hub.submit(0, [(1, "learn", "a", b"")])
    assert [number for number, _, _ in first + await second] == [1, 2]


async def test_a_listener_to_whom_nothing_comes_returns_a_sign_of_life() -> None:
    assert await Hub().take(0.0) == []
