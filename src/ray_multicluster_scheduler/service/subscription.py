"""Who is told by the event hub: a thread or a coroutine, and what it has not taken yet."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from ray_multicluster_scheduler.model.job import Job

#: The newest rows of jobs that have changed; None: the job was removed.
Changed = Mapping[str, Job | None]


class Hub(Protocol):
    """Where a subscriber is known."""

    def check(self) -> None:
        """Raise where nobody can be told anything: in a forked child."""

    def take(self, subscriber: Subscriber) -> Changed:
        """Return what the subscriber was not told yet; raises what ended the hub."""

    def leave(self, subscriber: Subscriber) -> None:
        """Tell the subscriber nothing more."""


class Subscriber:
    """Some jobs by their ids, or (None) the events of all. Its fields are the hub's, under the hub's lock."""

    def __init__(self, hub: Hub, ids: Iterable[str] | None) -> None:
        self._hub = hub
        self.ids = frozenset(ids or ())
        self.hears_all = ids is None
        #: Has not been told of its jobs for the first time.
        self.fresh = bool(self.ids)
        #: At most one row for each of its jobs, however late it takes them.
        self.changed: dict[str, Job | None] = {}
        #: Why it is told nothing more.
        self.failure: BaseException | None = None
        #: Was woken and has not looked since.
        self.woken = False

    def wake(self) -> None:
        """Wake it, from any thread; must return at once."""
        raise NotImplementedError

    def clear_wake(self) -> None:
        """Let the next `wake` wake it again."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave the hub."""
        self._hub.leave(self)

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


S = TypeVar("S", bound=Subscriber)


class Subscription(Subscriber):
    """For a thread. The first answer has all jobs, later ones those that have changed since."""

    def __init__(self, hub: Hub, ids: Iterable[str] | None) -> None:
        super().__init__(hub, ids)
        self._news = threading.Event()

    def wake(self) -> None:
        """Wake the thread."""
        self._news.set()

    def clear_wake(self) -> None:
        """Let the thread sleep again."""
        self._news.clear()

    def wait(self, timeout_s: float | None = None) -> Changed:
        """Wait for a change, this long at most; return what has changed, which may be nothing."""
        self._hub.check()
        self._news.wait(timeout_s)
        return self._hub.take(self)


class AsyncSubscription(Subscriber):
    """The same for the event loop that it is made in: no thread waits."""

    def __init__(self, hub: Hub, ids: Iterable[str] | None) -> None:
        super().__init__(hub, ids)
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Wake the coroutine; raises RuntimeError when its loop is closed."""
        self._loop.call_soon_threadsafe(self._news.set)

    def clear_wake(self) -> None:
        """Let the coroutine sleep again; called in its loop."""
        self._news.clear()

    def nudge(self) -> None:
        """Let `wait` return at once, without a change; called in its loop."""
        self._news.set()

    async def wait(self, timeout_s: float | None = None) -> Changed:
        """Wait for a change, this long at most; return what has changed, which may be nothing."""
        self._hub.check()
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, self._news.set)
        try:
            await self._news.wait()
        finally:
            if timer is not None:
                timer.cancel()
        return self._hub.take(self)
