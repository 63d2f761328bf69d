"""The time for which a cluster has not answered, as evidence about its jobs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ray_multicluster_scheduler.model.cluster import ClusterSpec, Witness
from ray_multicluster_scheduler.model.job import Job

#: Failed looks that are further apart than this and than twenty polls do not count as one silence: this
#: process was suspended in between.
LONGEST_GAP_S = 60.0
LONGEST_GAP_POLLS = 20
#: After so many looks in a row that found an address closed, its refusal is no evidence. Not after one:
#: a head that is being stopped closes its ports one after the other.
CLOSED_LOOKS = 3


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


def after_head_look(known: Witness | None, head: Witness, *, is_open: bool) -> Witness | None:
    """Return what is known of a head after a look at its addresses while it was well.

    `is_open`: both are open, and it is the head itself that listens there.
    """
    if is_open:
        return head
    if known is None or (known.session_name, known.addresses) != (head.session_name, head.addresses):
        return None
    closed_looks = known.closed_looks + 1
    return None if closed_looks >= CLOSED_LOOKS else replace(known, closed_looks=closed_looks)


def refusal_counts(witness: Witness | None, spec: ClusterSpec, job: Job) -> bool:
    """Tell whether refused connections are evidence that the head on which a job was started is gone."""
    return (
        witness is not None
        and witness.session_name == job.session_name
        and witness.addresses == spec.addresses
    )
