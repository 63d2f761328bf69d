"""Sums of claims: of our own jobs, kept while they come and go, and of the jobs of other schedulers."""

from __future__ import annotations

from ray_multicluster_scheduler.core.lifecycle.attempt_request import ORIGIN, claim_of, has_origin
from ray_multicluster_scheduler.model.execution import InventoryRow
from ray_multicluster_scheduler.model.resources import Resources

#: Whole numbers are added exactly, in any order and however often: what is taken off again leaves nothing.
_UNITS = 2**40
#: Resources that are counted in others' claims: anybody can write any names into the metadata of a job.
MOST_NAMES = 100


class Claims:
    """What some jobs claim together."""

    def __init__(self) -> None:
        self._units: dict[str, int] = {}
        self._total: dict[str, float] | None = {}

    def add(self, claim: Resources) -> None:
        """Count a claim."""
        for name, amount in claim.items():
            self._units[name] = self._units.get(name, 0) + round(amount * _UNITS)
        self._total = None

    def remove(self, claim: Resources) -> None:
        """Count a claim off that was added before."""
        for name, amount in claim.items():
            left = self._units.get(name, 0) - round(amount * _UNITS)
            if left:
                self._units[name] = left
            else:
                self._units.pop(name, None)
        self._total = None

    @property
    def total(self) -> dict[str, float]:
        """The sum by resource; the same object until a claim is added or removed."""
        if self._total is None:
            self._total = {name: units / _UNITS for name, units in self._units.items()}
        return self._total

    def __bool__(self) -> bool:
        return bool(self._units)


class OtherClaims:
    """Adds up what the open jobs of other schedulers claim, while the list of a cluster's jobs passes by.

    Ray does not know these claims: a job that was promised 4 CPUs and sleeps uses none. A job without an
    origin is none of a scheduler's; what it takes is in the usage that Ray reports.
    """

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._claims = Claims()
        self._names = {"CPU", "GPU", "memory"}  # these are counted whatever others write

    def see(self, row: InventoryRow) -> None:
        """Take note of an entry of the list."""
        if row.status is None or row.status.final or ORIGIN not in row.metadata:
            return
        if not has_origin(row, self._origin):
            claim = claim_of(row)
            for name in claim:
                if len(self._names) < MOST_NAMES:
                    self._names.add(name)
            self._claims.add({name: claim[name] for name in claim if name in self._names})

    @property
    def total(self) -> Resources:
        """The sum by resource."""
        return self._claims.total
