"""Resources claimed by tasks and actors that no snapshot of their cluster shows yet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ray_multicluster_scheduler.model.resources import Resources, plus

#: Returns the refs whose values are ready.
Finished = Callable[[list[Any]], list[Any]]
#: Of each cluster so many tasks are asked about at once, the oldest: they are likely to end first.
MAX_ASKED = 1000


@dataclass(slots=True, eq=False)
class UnobservedClaim:
    """The resources of one task or actor."""

    resources: Resources
    #: When it was sent (wall clock); None while it waits for a bridge: no snapshot can show it.
    sent_at: float | None = None
    #: The result of a task, to notice its end; None for an actor, and before the task is sent.
    ref: Any = None


class UnobservedClaims:
    """Claims per cluster that are too recent for its snapshot.

    The refs held here keep results alive, so claims are dropped within seconds.
    """

    def __init__(self, finished: Finished) -> None:
        self._finished = finished
        self._claims: dict[str, list[UnobservedClaim]] = {}
        self._totals: dict[str, dict[str, float]] = {}

    def add(self, cluster: str, claim: UnobservedClaim) -> None:
        """Add the claim of a task or an actor that was just placed."""
        self._claims.setdefault(cluster, []).append(claim)
        self._totals[cluster] = plus(self._totals.get(cluster, {}), claim.resources)

    def remove(self, cluster: str, claim: UnobservedClaim) -> None:
        """Remove the claim of a task or an actor that was not sent after all."""
        self._keep(cluster, (each for each in self._claims.get(cluster, ()) if each is not claim))

    def total(self, cluster: str) -> Resources:
        """Return the sum of the claims on a cluster."""
        return self._totals.get(cluster, {})

    def drop_sent(self, cluster: str, *, before: float) -> None:
        """Drop claims sent before a given time: a later snapshot shows them."""
        claims = self._claims.get(cluster, ())
        self._keep(cluster, (claim for claim in claims if claim.sent_at is None or claim.sent_at >= before))

    def drop_finished(self) -> dict[str, Resources]:
        """Drop the claims of finished tasks, and return their sum for each cluster that had some.

        One question for all clusters: over Ray Client it is a round trip.
        """
        refs = [
            claim.ref
            for claims in self._claims.values()
            for claim in itertools.islice((each for each in claims if each.ref is not None), MAX_ASKED)
        ]
        # Ray Client answers with new objects, which equal the old ones.
        done = set(self._finished(refs)) if refs else set()
        dropped: dict[str, Resources] = {}
        for cluster, claims in self._claims.items() if done else ():
            if ended := [claim.resources for claim in claims if claim.ref in done]:
                dropped[cluster] = _sum(ended)
                self._keep(cluster, (claim for claim in claims if claim.ref not in done))
        return dropped

    @property
    def clusters(self) -> tuple[str, ...]:
        """Return the clusters that have had claims."""
        return tuple(self._claims)

    def _keep(self, cluster: str, claims: Iterable[UnobservedClaim]) -> None:
        kept = list(claims)
        self._claims[cluster], self._totals[cluster] = kept, _sum(claim.resources for claim in kept)


def _sum(claims: Iterable[Resources]) -> dict[str, float]:
    total: dict[str, float] = {}
    for claim in claims:
        total = plus(total, claim)
    return total
