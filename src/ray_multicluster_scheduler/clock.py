"""The real clock, one that does not jump, and jitter for pauses; tests pass their own."""

from __future__ import annotations

import random
import time
import uuid
from functools import lru_cache
from pathlib import Path

from ray_multicluster_scheduler.ports import Clock

#: Linux says which start of the machine this is; elsewhere each process counts as one of its own.
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: Goes on while the machine sleeps, where there is such a clock.
_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: Returns numbers from 0 to 1, for pauses that many processes must not make in step. From a generator of our
#: own: a program that seeds Python's gets the numbers that it expects, whatever our threads do meanwhile.
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
        """Return which start of the machine that is."""
        return _boot()


@lru_cache(maxsize=1)
def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return uuid.uuid4().hex


class SteadyClock:
    """The time of another clock when this one was made, and what has passed since: it never jumps."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: What has to be added to the uptime.
        self.offset = clock.now() - clock.uptime()

    def now(self) -> float:
        """Return seconds since the epoch, as if nobody had set the clock meanwhile."""
        return self.offset + self._clock.uptime()

    def monotonic(self) -> float:
        """Return seconds that never jump."""
        return self._clock.monotonic()

    def uptime(self) -> float:
        """Return seconds since the machine was started."""
        return self._clock.uptime()

    def boot(self) -> str:
        """Return which start of the machine that is."""
        return self._clock.boot()

    def step_s(self) -> float:
        """Return by how much the other clock was set forward (or, below zero, back) meanwhile."""
        return self._clock.now() - self.now()
