"""How much work a client may cause."""

from __future__ import annotations


class WorkLimit:
    """A bucket that fills again: a client that only resets streams, or changes windows, is cut off."""

    def __init__(self, most: int, per_second: float) -> None:
        self._most = most
        self._per_second = per_second
        self._used = 0.0
        self._since = 0.0

    def exceeded(self, now: float, work: int = 1) -> bool:
        """Count this work and tell whether it is too much."""
        self._used = max(0.0, self._used - (now - self._since) * self._per_second) + work
        self._since = now
        return self._used > self._most
