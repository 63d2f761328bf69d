"""How many streams a client may break."""

from __future__ import annotations


class ResetLimit:
    """A bucket of resets that fills again: who only opens and resets streams loses its connection."""

    def __init__(self, most: int, per_second: float) -> None:
        self._most = most
        self._per_second = per_second
        self._used = 0.0
        self._since = 0.0

    def exceeded(self, now: float) -> bool:
        """Count one reset and tell whether it is one too many."""
        self._used = max(0.0, self._used - (now - self._since) * self._per_second) + 1
        self._since = now
        return self._used > self._most
