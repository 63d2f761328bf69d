"""The real clock; tests pass their own."""

from __future__ import annotations

import time


class SystemClock:
    """`ports.Clock` over the clocks of this machine."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds that never jump."""
        return time.monotonic()
