"""Running things at the same time without leaving any of them behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")


async def together(jobs: Iterable[Coroutine[Any, Any, A]]) -> list[A]:
    """Run all and return their results; when one fails or the caller is cancelled, none is left running."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def both(one: Coroutine[Any, Any, A], other: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Do the same for two of different types."""
    first, second = asyncio.create_task(one), asyncio.create_task(other)
    try:
        return await asyncio.gather(first, second)
    finally:
        first.cancel()
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
