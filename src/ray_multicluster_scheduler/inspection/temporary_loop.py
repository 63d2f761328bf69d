"""Calls to clusters without an engine, on a temporary thread with its own event loop and connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from ray_multicluster_scheduler.ports import Connections

T = TypeVar("T")

Connect = Callable[[], Connections]


def begin_on_temporary_loop(
    connect: Connect, function: Callable[[Connections], Coroutine[Any, Any, T]]
) -> Future[T]:
    """Run a coroutine that talks to clusters on its own event loop; also works inside a running loop."""
    loop = asyncio.new_event_loop()

    async def ask() -> T:
        connections = connect()
        try:
            return await function(connections)
        finally:
            await asyncio.gather(*(each.close() for each in connections.values()))

    async def ask_and_end() -> T:
        try:
            return await ask()
        finally:
            loop.call_soon(loop.stop)

    running = asyncio.run_coroutine_threadsafe(ask_and_end(), loop)
    threading.Thread(target=_run, args=(loop,), name="raymc-temporary-loop", daemon=True).start()
    return running


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
