"""How tests wait for what no event announces: they look again until it holds."""

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any

#: How long a test waits for what must come, on a machine that is busy with much else: only a failure takes
#: this long.
PATIENCE_S = 600.0
#: Between two looks passes a small part of the time that was waited already, within these bounds: what comes
#: soon is seen at once, and what takes long is not slowed down by those who look.
PART, SHORTEST_S, LONGEST_S = 0.05, 0.01, 0.2


def until(
    holds: Callable[[], Any], *, within_s: float = PATIENCE_S, told: Callable[[], object] | None = None
) -> Any:
    """Wait until something holds, and return it; `told` says what there was instead."""
    pauses = _pauses(within_s, told)
    while not (found := holds()):
        time.sleep(next(pauses))
    return found


async def eventually(
    holds: Callable[[], Any], *, within_s: float = PATIENCE_S, told: Callable[[], object] | None = None
) -> Any:
    """Wait in a coroutine until something holds, and return it; what `holds` returns may be awaited."""
    pauses = _pauses(within_s, told)
    while True:
        found = holds()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        await asyncio.sleep(next(pauses))


def _pauses(within_s: float, told: Callable[[], object] | None) -> Iterator[float]:
    began = time.monotonic()
    while (waited := time.monotonic() - began) < within_s:
        yield min(max(PART * waited, SHORTEST_S), LONGEST_S)
    raise AssertionError(f"not within {within_s:g} s: {told() if told else 'it never came true'}")
