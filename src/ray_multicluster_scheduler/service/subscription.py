"""Subscriptions to the event hub, for threads and coroutines, with the changes not taken yet."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from ray_multicluster_scheduler.model.job import Job

#: The newest rows of jobs that have changed; None: the job was removed.
Changed = Mapping[str, Job | None]


class Hub(Protocol):
    """The part of the event hub that a subscriber uses."""

    def check(self) -> None:
        """Raise in a forked child, which gets no notifications."""

    def take(self, subscriber: Subscriber) -> Changed:
        """Return the changes that the subscriber has not taken yet; raises the error that ended the hub."""

    def leave(self, subscriber: Subscriber) -> None:
        """Remove a subscriber."""


class Subscriber:
    """Subscribes to jobs by id, or (None) to all events. The hub's lock guards the fields."""

    def __init__(self, hub: Hub, ids: Iterable[str] | None) -> None:
        self._hub = hub
        self.ids = frozenset(ids or ())
        self.hears_all = ids is None
        #: True until it has got its first rows.
        self.fresh = bool(self.ids)
        #: At most one row per job: a newer row replaces one that was not taken.
        self.changed: dict[str, Job | None] = {}
        #: The error that ended the subscription.
        self.failure: BaseException | None = None
        #: True between a wake-up and the next `take`.
        self.woken = False

    def wake(self) -> None:
        """Wake the subscriber, from any thread; must not block."""
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
    """For a thread. The first `wait` returns all jobs, later ones only the changed jobs."""

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
    """For a coroutine of the event loop in which it is created: no thread waits."""

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
