"""When a cluster counts as healthy, how good it is, and how long to leave a failing one alone.

One `Track` per cluster is carried from probe to probe. All rules are here; time, chance and the network
come in as values. A cluster is healthy exactly while its breaker is closed:

- CLOSED: trusted. After a silent probe, new jobs go elsewhere if they can (core/placement/checks.py); `limit`
  of them in a row, or one certain sign (connection refused, wrong token, head node dead), open the breaker.
- OPEN: not trusted, and tried ever more rarely, so that a dead cluster costs little.
- HALF_OPEN: it answered again. It is trusted after `SUCCESSES_TO_CLOSE` good probes in a row, so that a
  flapping cluster does not attract work at every flicker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from ray_multicluster_scheduler.errors import ClusterAuthFailed, ClusterError, ClusterUnreachable
from ray_multicluster_scheduler.model.cluster import Health, Node

SUCCESSES_TO_CLOSE = 2
#: Weight of the newest probe in the averages: about the last six probes count.
NEWEST = 0.3
#: Doubling more often than this reaches every ceiling, and keeps 2**n a small number.
MAX_DOUBLINGS = 16


class Circuit(str, Enum):
    """The three positions of a breaker."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Successes and failures in a row, and what follows from them."""

    circuit: Circuit = Circuit.CLOSED
    failures: int = 0
    successes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one probe says. Without `problem`: nodes and job list answered in time, and the head is alive."""

    latency_s: float | None = None
    problem: str | None = None
    #: The problem is evidence, not silence: waiting for a second opinion would only lose jobs.
    certain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """What the probes of one cluster add up to."""

    breaker: Breaker = field(default_factory=Breaker)
    #: Share of recent probes that were good, 0 to 1; None before the first one.
    reliability: float | None = None
    #: Recent average of the good probes; None before the first one.
    latency_s: float | None = None
    problem: str | None = None

    @property
    def health(self) -> Health:
        """Tell whether work may be sent: only while the breaker is closed."""
        if self.reliability is None:
            return Health.UNKNOWN
        return Health.HEALTHY if self.breaker.circuit is Circuit.CLOSED else Health.UNHEALTHY


def after_success(breaker: Breaker) -> Breaker:
    """Count a good probe; a breaker that was open closes after `SUCCESSES_TO_CLOSE` of them in a row."""
    successes = breaker.successes + 1
    if breaker.circuit is Circuit.CLOSED or successes >= SUCCESSES_TO_CLOSE:
        return Breaker()
    # The failures are kept: if it fails again at once, the pauses go on growing from where they were.
    return Breaker(circuit=Circuit.HALF_OPEN, failures=breaker.failures, successes=successes)


def after_failure(breaker: Breaker, *, limit: int, at_once: bool = False) -> Breaker:
    """Count a failed probe; it opens the breaker after `limit` in a row, or `at_once`."""
    failures = breaker.failures + 1
    stays_closed = breaker.circuit is Circuit.CLOSED and failures < limit and not at_once
    return Breaker(circuit=Circuit.CLOSED if stays_closed else Circuit.OPEN, failures=failures)


def pause_s(breaker: Breaker, *, limit: int, interval_s: float, max_delay_s: float, jitter: float) -> float:
    """Return how long to wait before the next probe; `jitter` (0 to 1) spreads many clusters over time.

    While the breaker is not open: about `interval_s`. While open: doubling from `interval_s` up to
    `max_delay_s`, of which a random half is taken off.
    """
    if breaker.circuit is not Circuit.OPEN:
        return interval_s * (0.9 + 0.2 * jitter)
    doublings = min(max(breaker.failures - limit + 1, 0), MAX_DOUBLINGS)
    ceiling = max(max_delay_s, interval_s)
    return min(interval_s * 2.0**doublings, ceiling) * (0.5 + 0.5 * jitter)


def finding_of_nodes(nodes: Sequence[Node], *, latency_s: float) -> Finding:
    """Judge a complete answer: Ray goes on answering after its head node died, and then nothing runs."""
    heads = [node for node in nodes if node.is_head]
    if heads and not any(node.alive for node in heads):
        return Finding(
            latency_s=latency_s,
            certain=True,
            problem=f"the head node {heads[-1].address} is DEAD though its dashboard still answers; "
            "restart Ray there",
        )
    if not any(node.alive for node in nodes):
        return Finding(latency_s=latency_s, certain=True, problem="no node of the cluster is alive")
    return Finding(latency_s=latency_s)


def finding_of_error(error: ClusterError) -> Finding:
    """Judge a probe that failed: a refusal is evidence, silence and strange answers may be an accident."""
    refused = isinstance(error, ClusterUnreachable) and error.refused
    return Finding(problem=error.detail, certain=refused or isinstance(error, ClusterAuthFailed))


def judge(track: Track, finding: Finding, *, limit: int) -> Track:
    """Add one finding to the track of its cluster."""
    if finding.problem is not None:
        never_proven = track.health is not Health.HEALTHY
        return Track(
            breaker=after_failure(track.breaker, limit=limit, at_once=finding.certain or never_proven),
            reliability=_average(track.reliability, 0.0),
            latency_s=track.latency_s,
            problem=finding.problem,
        )
    breaker = after_success(track.breaker)
    trusted = breaker.circuit is Circuit.CLOSED
    latency_s = track.latency_s
    if finding.latency_s is not None:
        latency_s = _average(track.latency_s, finding.latency_s)
    return Track(
        breaker=breaker,
        reliability=_average(track.reliability, 1.0),
        latency_s=latency_s,
        problem=None if trusted else "answers again; it is trusted after one more good probe",
    )


def score(track: Track, *, deadline_s: float) -> float:
    """Rate a cluster from 0 (avoid) to 1 (answers always and at once), from its recent probes."""
    if track.reliability is None or track.latency_s is None:
        return 0.0
    return track.reliability * (1.0 - min(1.0, track.latency_s / deadline_s))


def _average(so_far: float | None, newest: float) -> float:
    return newest if so_far is None else so_far + NEWEST * (newest - so_far)
