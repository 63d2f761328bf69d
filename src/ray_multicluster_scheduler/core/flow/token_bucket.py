"""How fast the jobs of a dead cluster are started anew.

When a cluster dies with hundreds of jobs, they are not thrown at the others all at once, but started one
after another: if it was one of them that killed the cluster, the others are not killed with it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBucket:
    """A token bucket: `burst` starts at once, then `per_s`. `empty_until` is all that it remembers."""

    per_s: float
    burst: int
    empty_until: float = 0.0

    def wait_s(self, now: float) -> float:
        """Return how long the next start has to wait."""
        return max(0.0, max(self.empty_until, now) - now - (self.burst - 1) / self.per_s)

    def taken(self, now: float) -> TokenBucket:
        """Return the bucket after one token was taken, now or in advance."""
        later = max(self.empty_until, now) + 1.0 / self.per_s
        return TokenBucket(per_s=self.per_s, burst=self.burst, empty_until=later)
