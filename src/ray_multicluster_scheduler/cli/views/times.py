"""How times look: as people say them in a terminal, as programs compare them in a pipe."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

from rich.console import Console

from ray_multicluster_scheduler.cli.views.render import age, ago
from ray_multicluster_scheduler.clock import SystemClock


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Writes times relative to `now` for people, and in ISO 8601 (UTC) and seconds for programs."""

    now: float
    for_programs: bool

    @classmethod
    def of(cls, console: Console) -> Times:
        """Return how times look on this console at this moment."""
        return cls(now=SystemClock().now(), for_programs=not console.is_terminal)

    def when(self, at: float | None) -> str:
        """Write `3 min ago` or `2026-01-31T08:00:00Z`; `-` where it never was."""
        return iso(at) if at is not None and self.for_programs else ago(at, self.now)

    def since(self, at: float) -> str:
        """Write `for 3 min` or `since 2026-01-31T08:00:00Z`."""
        return f"since {iso(at)}" if self.for_programs else f"for {age(max(0.0, self.now - at))}"

    def ran(self, started: float | None, ended: float | None) -> str:
        """Write how long a program runs or ran: `12 s` or `12.3s`; `-` where that is not known."""
        if started is None:
            return "-"
        seconds = max(0.0, (self.now if ended is None else ended) - started)
        if self.for_programs:
            return f"{seconds:.1f}s"
        return "<1 s" if seconds < 1 else age(seconds)


def iso(at: float) -> str:
    """Write a moment in UTC, to the second."""
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
