"""Run coroutines at the same time, and never leave one of them running."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")


async def together(coroutines: Iterable[Coroutine[Any, Any, A]]) -> list[A]:
    """Run all and return their results. If one fails or the caller is cancelled, the others are cancelled."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await _cancel_unfinished(tasks)


async def both(one: Coroutine[Any, Any, A], other: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Do what `together` does, for two coroutines with different result types."""
    first, second = asyncio.create_task(one), asyncio.create_task(other)
    try:
        return await asyncio.gather(first, second)
    finally:
        await _cancel_unfinished([first, second])


async def _cancel_unfinished(tasks: Sequence[asyncio.Task[Any]]) -> None:
    if not all(task.done() for task in tasks):  # usually all are
        await cancel_all(tasks)


async def cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait until they have ended."""
    pending = list(tasks)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


class Background:
    """Tasks that nobody waits for, one by one. The first that fails fails `run`; `close` leaves none."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failed = asyncio.Event()
        self._failure: BaseException | None = None

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        """Begin something."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def run(self) -> None:
        """Wait until a task fails, and raise what it raised."""
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    async def close(self, grace_s: float = 0.0) -> None:
        """Cancel what is under way after this time, and wait until it has ended."""
        if grace_s and self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        await cancel_all(self._tasks)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        if failure is not None and self._failure is None:
            self._failure = failure
            self._failed.set()


async def within(timeout_s: float | None, work: Awaitable[A]) -> A:
    """Return the result of `work`; after the time-out, cancel it and raise `asyncio.TimeoutError`.

    Before Python 3.12, `asyncio.wait_for` can swallow its cancellation if the work ends at the same moment. A
    loop around it would then run for ever, and whatever waits for the loop would hang.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=timeout_s)
        if not task.done():
            raise asyncio.TimeoutError
        return task.result()
    finally:
        await cancel_all([task])


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, A]) -> A | None:
    """Return the result of the work, or None as soon as the event is set; then the work is cancelled."""
    working, waiting = asyncio.create_task(work), asyncio.create_task(event.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        await cancel_all([working, waiting])


async def wait_for(event: asyncio.Event, timeout_s: float | None) -> bool:
    """Wait until the event is set or the time is over; tell whether the event is set."""
    with suppress(asyncio.TimeoutError):
        await within(timeout_s, event.wait())
    return event.is_set()


async def repeat(
    step: Callable[[], Coroutine[Any, Any, object]],
    wake: asyncio.Event,
    pause_s: Callable[[], float],
    *,
    rest_s: float = 0.0,
) -> None:
    """Call `step` when `wake` is set, and at least every `pause_s()` seconds. An exception ends the loop.

    After each call the loop rests for `rest_s`, so that frequent wake-ups are handled together.
    """
    while True:
        wake.clear()
        await step()
        await asyncio.sleep(rest_s)
        await wait_for(wake, pause_s())
