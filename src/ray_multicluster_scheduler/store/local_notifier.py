"""Notifications between the threads of one process. Those between processes are added by each database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from ray_multicluster_scheduler.errors import StoreError

#: How late a change is noticed at worst, when its notification got lost.
FALLBACK_POLL_S = 1.0


class LocalNotifier:
    """Counts notifications, wakes waiting threads and calls subscribers.

    `read_changes` returns a number that differs after a change. It is read when no notification has come for
    `fallback_poll_s`, because notifications of other processes may get lost.
    """

    def __init__(self, read_changes: Callable[[], int], *, fallback_poll_s: float) -> None:
        self._read_changes = read_changes
        self._fallback_poll_s = fallback_poll_s
        self._condition = threading.Condition()
        self._received = 0
        self._callbacks: dict[object, Callable[[], None]] = {}
        self._closed = threading.Event()
        #: The last number of changes that was read.
        self._changes: int | None = None

    def listen(self) -> int:
        """Return how many notifications came so far."""
        with self._condition:
            return self._received

    def wait(self, received: int, *, timeout_s: float) -> None:
        """Block until more than `received` notifications have come, or the time is over."""
        with self._condition:
            self._condition.wait_for(lambda: self._received > received or self._closed.is_set(), timeout_s)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` for each notification, from any thread; returns a function that ends this.

        It must return at once, as `loop.call_soon_threadsafe(event.set)` does.
        """
        key = object()
        with self._condition:
            self._callbacks[key] = callback
        self.listen()
        return partial(self._unsubscribe, key)

    def notify_here(self) -> None:
        """Notify this process only."""
        with self._condition:
            self._received += 1
            callbacks = tuple(self._callbacks.items())
            self._condition.notify_all()
        for key, callback in callbacks:
            try:
                callback()
            except RuntimeError:  # its event loop is closed; the commit that caused this must not fail
                self._unsubscribe(key)

    def _unsubscribe(self, key: object) -> None:
        with self._condition:
            self._callbacks.pop(key, None)

    def _notify_if_changed(self) -> None:
        """Look at the store itself, and notify this process if it has changed or cannot be read."""
        try:
            changes = self._read_changes()
        except StoreError:  # woken threads see the error
            self._changes = None
            self.notify_here()
            return
        if changes != self._changes:
            self._changes = changes
            self.notify_here()
