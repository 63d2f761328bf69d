"""Waiting for changes that any process commits to the store."""

from __future__ import annotations

import time
from collections.abc import Callable

from ray_multicluster_scheduler.store.backend import ChangeNotifier
from ray_multicluster_scheduler.store.operations import change_counter
from ray_multicluster_scheduler.store.transactions import Transactions


class ChangeFeed:
    """Combines the counter in the store, which is exact, with notifications, which are prompt."""

    def __init__(self, transactions: Transactions, notifier: ChangeNotifier) -> None:
        self._transactions = transactions
        self._notifier = notifier

    def wait(self, seen: int, *, timeout_s: float) -> int:
        """Block until the counter is beyond `seen`, or the time is over; return the counter."""
        deadline = time.monotonic() + timeout_s
        while True:
            received = self._notifier.listen()
            with self._transactions.read() as tx:
                changes = change_counter.read_changes(tx)
            left = deadline - time.monotonic()
            if changes > seen or left <= 0:
                return changes
            self._notifier.wait(received, timeout_s=left)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change, from any thread; returns a function that ends this."""
        return self._notifier.subscribe(callback)

    def close(self) -> None:
        """Stop receiving notifications, and wake all waiting threads."""
        self._notifier.close()

    def wake(self) -> None:
        """Wake all waiting threads and subscribers of this process."""
        self._notifier.notify_here()
