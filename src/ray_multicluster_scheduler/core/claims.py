"""Sums of claims that are kept while jobs come and go."""

from __future__ import annotations

from ray_multicluster_scheduler.model.resources import Resources

#: Whole numbers are added exactly, in any order and however often: what is taken off again leaves nothing.
_UNITS = 2**40


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
