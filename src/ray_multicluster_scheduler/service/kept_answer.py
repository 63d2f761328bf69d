"""An answer that costs something, kept for a few seconds for all who ask."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from ray_multicluster_scheduler.ports import Clock

T = TypeVar("T")


class KeptAnswer(Generic[T]):
    """Asks again when the last answer is too old; threads that ask at the same time share one answer."""

    def __init__(self, ask: Callable[[], T], clock: Clock, *, good_for_s: float, times: float = 0.0) -> None:
        """`times`: an answer that took long is good for at least so many times as long."""
        self._ask = ask
        self._clock = clock
        self._good_for_s = good_for_s
        self._times = times
        self._lock = threading.Lock()
        #: With the time until which it is good. A failure is not kept.
        self._kept: tuple[T, float] | None = None

    def __call__(self) -> T:
        """Return an answer that is not too old."""
        with self._lock:
            if self._kept is None or self._clock.monotonic() >= self._kept[1]:
                began = self._clock.monotonic()
                answer = self._ask()
                ended = self._clock.monotonic()
                self._kept = answer, ended + max(self._good_for_s, self._times * (ended - began))
            return self._kept[0]
