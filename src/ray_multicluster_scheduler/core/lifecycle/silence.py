"""The time for which a cluster has not answered, as evidence about its jobs."""

from __future__ import annotations

from dataclasses import dataclass

#: Failed looks that are further apart than this and than twenty polls do not count as one silence: this
#: process was suspended in between.
LONGEST_GAP_S = 60.0
LONGEST_GAP_POLLS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Consecutive looks without an answer."""

    since: float
    last_at: float
    #: Since when dashboard and head address have both refused connections; None if they have not.
    refused_since: float | None

    @property
    def lasts_s(self) -> float:
        """How long it had lasted at the last look."""
        return self.last_at - self.since

    @property
    def refused_s(self) -> float:
        """How long all connections had been refused at the last look."""
        return 0.0 if self.refused_since is None else self.last_at - self.refused_since


def after_silent_look(
    silence: Silence | None, *, refused: bool, now: float, poll_interval_s: float
) -> Silence:
    """Count another look without an answer. `refused`: dashboard and head address refused connections."""
    longest_gap_s = LONGEST_GAP_S + LONGEST_GAP_POLLS * poll_interval_s
    if silence is None or now - silence.last_at > longest_gap_s:
        return Silence(since=now, last_at=now, refused_since=now if refused else None)
    refused_since = silence.refused_since if silence.refused_since is not None else now
    return Silence(since=silence.since, last_at=now, refused_since=refused_since if refused else None)
