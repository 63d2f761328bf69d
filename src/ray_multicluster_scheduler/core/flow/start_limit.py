"""How many jobs may a cluster be starting at once? As many as it starts without getting slower.

Ray gets slower when it is flooded, and how much it takes depends on its machine. So the limit follows what is
observed, as congestion control does: it grows while starts take about as long as the shortest ones lately,
and shrinks by a part when they take much longer. It grows fast until a cluster first gets slower.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

#: Where a cluster begins that nobody has seen start anything.
FIRST_LIMIT = 2
#: Slow start: added to the limit with each start until the cluster first gets slower. A full round of starts
#: grows the limit by half, because what a round costs shows only when it is over.
FIRST_STEP = 0.5
#: Up to this many times the shortest start is "about as long".
FAST = 1.25
#: From this many times the shortest start on, it is "much longer".
SLOW = 1.5
SHRINK = 0.7
#: The shortest start is forgotten by this part with each flight of further starts: clusters change.
FORGET = 0.002
#: Differences below this may come from us: from when we look, or from how busy this machine is.
NOISE_S = 1.0


def slow_from_s(shortest_s: float) -> float:
    """Return how long a start takes at least that is called slow."""
    return max(shortest_s * SLOW, shortest_s + NOISE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The limit of one cluster, and what it was learnt from."""

    limit: float
    most: int
    shortest_s: float | None = None
    #: No slow start was seen yet.
    unknown: bool = True
    #: Starts that were under way when the limit shrank: they say nothing new.
    old_news: int = 0

    @property
    def starts(self) -> int:
        """How many may be starting at once."""
        return int(self.limit)


def first_pace(most: int) -> Pace:
    """Return the pace of a cluster of which nothing is known; it never exceeds `most`."""
    return Pace(limit=float(min(FIRST_LIMIT, most)), most=most)


def after_start(pace: Pace, took_s: float, *, starting: int, full: bool) -> Pace:
    """Learn from a start that took this long, while so many were starting, itself included.

    `full`: it was of those that used the limit up, so that a larger one might have let more jobs start.
    """
    known_s = took_s if pace.shortest_s is None else pace.shortest_s * (1 + FORGET / starting)
    shortest = min(known_s, took_s)
    seen = replace(pace, shortest_s=shortest, old_news=max(0, pace.old_news - 1))
    if took_s > slow_from_s(shortest):
        if pace.old_news:
            return seen
        limit = max(1.0, pace.limit * SHRINK)
        return replace(seen, limit=limit, unknown=False, old_news=starting - 1)
    if not full or took_s > max(shortest * FAST, shortest + NOISE_S / 2):
        return seen  # the limit was not what held it back, or it is about right
    step = FIRST_STEP if pace.unknown else 1.0 / pace.limit
    return replace(seen, limit=min(float(pace.most), pace.limit + step))
