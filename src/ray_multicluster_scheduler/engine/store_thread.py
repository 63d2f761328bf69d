"""Store calls off the event loop, in order, on one thread of their own.

A database that another process has locked must not stop the loop that talks to the clusters. The default
executor is not used because it refuses work while the interpreter ends, which is when the lease is released.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class StoreThread:
    """`await offload(function, ...)` runs blocking functions one after another on a daemon thread."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="raymc-store", daemon=True)
        self._thread.start()

    async def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function` on the thread and return its result or raise its exception here."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            try:
                result = function(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - carried to the caller, whatever it is
                loop.call_soon_threadsafe(_settle, future.set_exception, future, error)
            else:
                loop.call_soon_threadsafe(_settle, future.set_result, future, result)

        self._work.put(work)
        return await future

    def is_here(self) -> bool:
        """Tell whether the caller runs on this thread: then it is one of the functions given to it."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Let the thread end after what is queued."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


def _settle(setter: Callable[[Any], None], future: asyncio.Future[Any], value: Any) -> None:
    """Set a future unless its caller was cancelled meanwhile."""
    if not future.done():
        setter(value)
