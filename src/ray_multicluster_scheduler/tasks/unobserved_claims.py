"""What this driver has placed on each cluster that the last look at the cluster cannot show yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ray_multicluster_scheduler.model.resources import Resources, plus

#: Tells which of these refs have their value.
Finished = Callable[[list[Any]], list[Any]]


@dataclass(slots=True, eq=False)
class UnobservedClaim:
    """One task or actor."""

    resources: Resources
    #: When it was sent, by the wall clock; None: it waits for a bridge, and no look can show it.
    sent_at: float | None = None
    #: The result of a task: it shows when the task is done. None for an actor, and until it is sent.
    ref: Any = None


class UnobservedClaims:
    """Claims per cluster that are too young to be seen.

    A task's ref is held here, which keeps its result alive: so only for seconds, until a look shows the use.
    """

    def __init__(self) -> None:
        self._claims: dict[str, list[UnobservedClaim]] = {}
        self._totals: dict[str, dict[str, float]] = {}

    def add(self, cluster: str, claim: UnobservedClaim) -> None:
        """Count a task or an actor that was just placed."""
        self._claims.setdefault(cluster, []).append(claim)
        self._totals[cluster] = plus(self._totals.get(cluster, {}), claim.resources)

    def remove(self, cluster: str, claim: UnobservedClaim) -> None:
        """Take one back that was not sent after all."""
        self._keep(cluster, (each for each in self._claims.get(cluster, ()) if each is not claim))

    def total(self, cluster: str) -> Resources:
        """Return what is placed there and cannot be seen yet."""
        return self._totals.get(cluster, {})

    def drop_sent(self, cluster: str, *, before: float) -> None:
        """Drop what was sent before a moment: a look since then shows it."""
        claims = self._claims.get(cluster, ())
        self._keep(cluster, (claim for claim in claims if claim.sent_at is None or claim.sent_at >= before))

    def drop_finished(self, cluster: str, finished: Finished) -> None:
        """Drop the tasks that are done."""
        refs = [claim.ref for claim in self._claims.get(cluster, ()) if claim.ref is not None]
        if refs and (done := {id(ref) for ref in finished(refs)}):
            self._keep(cluster, (claim for claim in self._claims[cluster] if id(claim.ref) not in done))

    @property
    def empty(self) -> bool:
        """Tell whether nothing is held."""
        return not any(self._claims.values())

    @property
    def clusters(self) -> tuple[str, ...]:
        """Return the clusters on which something was placed."""
        return tuple(self._claims)

    def _keep(self, cluster: str, claims: Iterable[UnobservedClaim]) -> None:
        kept = list(claims)
        total: dict[str, float] = {}
        for claim in kept:
            total = plus(total, claim.resources)
        self._claims[cluster], self._totals[cluster] = kept, total
