"""What several tasks want written at the same moment is written in one call: each costs a wait for disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from typing import Generic, TypeVar

from ray_multicluster_scheduler.errors import StoreError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batch(Generic[Item, Result]):
    """`await batch(item)` from any task of the loop. The first is written at once, the rest together.

    `write` gets items in the order in which they came and returns a result for each. Two items with a `key`
    in common never share a call, so that each sees what the other did. A `StoreError` is everybody's; any
    other error may be about one item only, so each is then written alone.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        *,
        keys: Callable[[Item], Collection[Hashable]],
    ) -> None:
        self._write = write
        self._keys = keys
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Result:
        """Return the item's own result once it is written."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._run())
        return await future

    async def close(self) -> None:
        """Wait for what is being written; later items are written as well."""
        if self._writer is not None:
            await asyncio.wait({self._writer})

    async def _run(self) -> None:
        while self._waiting:
            await self._write_group(self._take())

    async def _write_group(self, group: Sequence[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            results = await self._write([item for item, _ in group])
        except BaseException as error:  # noqa: BLE001 - carried to whoever waits for this write
            if isinstance(error, Exception) and not isinstance(error, StoreError) and len(group) > 1:
                for one in group:
                    await self._write_group([one])
                return
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), result in zip(group, results, strict=True):
            if not future.done():  # else: its caller was cancelled, and it is written all the same
                future.set_result(result)

    def _take(self) -> list[tuple[Item, asyncio.Future[Result]]]:
        """Take items up to the first one that has to do with an earlier one."""
        seen: set[Hashable] = set()
        count = 0
        for item, _ in self._waiting:
            keys = set(self._keys(item))
            if keys & seen:
                break
            seen |= keys
            count += 1
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group
