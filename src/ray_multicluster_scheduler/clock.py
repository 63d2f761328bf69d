"""The system clock, a clock that never jumps, and jitter for pauses. Tests pass their own."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Generic, TypeVar

from ray_multicluster_scheduler.ports import Clock

#: Linux has an id for each boot. Elsewhere each process counts as a boot of its own.
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: A clock that goes on while the machine sleeps, if the system has one.
_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: Two readings that are less than this apart are of the same moment,
_SAME_MOMENT_S = 0.01
#: and so many are tried on a machine that is too busy for that.
_READINGS = 10
#: Returns numbers from 0 to 1, so that many processes do not pause in step. It has a generator of its own: a
#: program that seeds Python's generator must get the numbers that it expects, whatever our threads do.
jitter = random.Random().random  # noqa: S311 - no secret


class SystemClock:
    """`ports.Clock` over the clocks of this machine."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds that never jump."""
        return time.monotonic()

    def uptime(self) -> float:
        """Return seconds since the machine was started, sleep included."""
        return time.clock_gettime(_UPTIME)

    def boot(self) -> str:
        """Return the id of the boot that `uptime` counts from."""
        return _boot()


@lru_cache(maxsize=1)
def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return uuid.uuid4().hex


class StoreClock(SystemClock):
    """The time of a store, on which all machines that share it agree."""

    def __init__(self) -> None:
        #: Returns the seconds by which the store is ahead of this machine.
        self.ahead_s: Callable[[], float] = lambda: 0.0

    def now(self) -> float:
        """Return seconds since the epoch."""
        return super().now() + self.ahead_s()


class SteadyClock:
    """A clock that never jumps: the time of another clock at its creation, plus the uptime since."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: The difference between the time and the uptime.
        self.offset = _offset(clock)

    def now(self) -> float:
        """Return seconds since the epoch, as if nobody had set the clock since."""
        return self.offset + self._clock.uptime()

    def monotonic(self) -> float:
        """Return seconds that never jump."""
        return self._clock.monotonic()

    def uptime(self) -> float:
        """Return seconds since the machine was started."""
        return self._clock.uptime()

    def boot(self) -> str:
        """Return the id of the boot that `uptime` counts from."""
        return self._clock.boot()

    def step_s(self) -> float:
        """Return by how much the other clock was set forward (or, if negative, back) since."""
        return _offset(self._clock) - self.offset


def _offset(clock: Clock) -> float:
    """Return the difference between the time and the uptime at one moment.

    A busy machine may keep a thread waiting for seconds between two readings, which is no step of the clock.
    """
    took_s, offset = float("inf"), 0.0
    for _ in range(_READINGS):
        before, now, after = clock.uptime(), clock.now(), clock.uptime()
        if after - before < took_s:
            took_s, offset = after - before, now - before
        if took_s < _SAME_MOMENT_S:
            break
    return offset


# An answer that costs something, kept for a few seconds for all who ask.


T = TypeVar("T")


class CachedFor(Generic[T]):
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
