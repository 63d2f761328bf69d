"""What every cluster is worth to every kind of job, as one table of numbers that is kept up to date.

It says the same as feasible.py and score.py, to the last bit: the same operations in the same order, on
arrays. A placement changes one cluster, so one column is computed anew, for all kinds at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ray_multicluster_scheduler.model.decision import QueuedJob
from ray_multicluster_scheduler.model.resources import TOLERANCE, Resources
from ray_multicluster_scheduler.policy import score
from ray_multicluster_scheduler.policy.feasible import (
    has_allowance,
    has_driver_slot,
    has_supported_version,
    is_healthy,
    is_not_drained,
    is_not_throttled,
)
from ray_multicluster_scheduler.policy.ledger import Room
from ray_multicluster_scheduler.policy.rules import PlanRules

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Checks that look at the cluster only; the first ones cannot change during a pass.
_LASTING = (is_healthy, is_not_drained, has_supported_version)
_PASSING = (is_not_throttled, has_driver_slot, has_allowance)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Amounts:
    """One cluster's amounts, in the order of the table's resources."""

    capacity: Floats
    #: 1 where there is nothing, so that it can be divided by.
    divisor: Floats
    has_any: Bools
    unknown: Bools


class ScoreTable:
    """Rows are kinds of jobs, columns are clusters by name; minus infinity: it may not go there now."""

    def __init__(self, samples: Sequence[QueuedJob], rooms: Sequence[Room], rules: PlanRules) -> None:
        self._rooms = rooms
        self._rules = rules
        self._names = sorted({name for job in samples for name in job.claim})
        self._claims = np.array([self._amounts(job.claim) for job in samples], dtype=np.float64).reshape(
            len(samples), len(self._names)
        )
        self._claimed = np.array(
            [[name in job.claim for name in self._names] for job in samples], dtype=np.bool_
        ).reshape(len(samples), len(self._names))
        self._clusters = [self._of_room(room) for room in rooms]
        self._fixed = self._can_ever(samples)
        self._free = np.zeros((len(rooms), len(self._names)))
        self._ours = np.zeros((len(rooms), len(self._names)))
        self._bonuses = [self._bonus(part, kind, samples) for part, kind in _BONUSES]
        self.totals = np.full((len(samples), len(rooms)), -np.inf)
        for column in range(len(rooms)):
            self.refresh(column)

    def best(self, row: int) -> int | None:
        """Return the best cluster for a kind of job; the first by name among equals."""
        column = int(self.totals[row].argmax())
        return None if self.totals[row, column] == -np.inf else column

    def allows(self, row: int, column: int) -> bool:
        """Tell whether a kind of job may go to a cluster now."""
        return bool(self.totals[row, column] != -np.inf)

    def candidates(self, row: int) -> int:
        """Return how many clusters would take a kind of job now."""
        return int(np.count_nonzero(self.totals[row] != -np.inf))

    def refresh(self, column: int) -> None:
        """Compute a column anew after its cluster has changed."""
        room, amounts = self._rooms[column], self._clusters[column]
        self._free[column] = self._amounts(room.free)
        self._ours[column] = self._amounts(room.ours)
        if any(check(_NOBODY, room, self._rules) for check in _PASSING):
            self.totals[:, column] = -np.inf
            return
        free = self._free[column]
        fits = self._fixed[:, column] & self._fit_into(free)
        if room.kept_for is not None:
            others = np.array(self._amounts(room.free_for_others()))
            fits &= self._fit_into(others) if room.slots > 1 else False
        shares = np.where(self._claimed & amounts.has_any, (free - self._claims) / amounts.divisor, np.inf)
        lowest = shares.min(axis=1, initial=np.inf)
        totals = np.where(lowest == np.inf, 1.0, lowest)
        totals = totals * room.view.spec.weight
        totals = totals * room.view.snapshot.score
        for bonus in self._bonuses:
            totals = totals + bonus[:, column]
        self.totals[:, column] = np.where(fits, totals, -np.inf)

    def in_our_way(self, row: int) -> list[int]:
        """Return the clusters that could hold such a job if ours were gone, the freest of them first."""
        claim, claimed = self._claims[row], self._claimed[row]
        lacks = ((claim > self._free + self._ours + TOLERANCE) & claimed).any(axis=1)
        wanted = claim > 0
        parts = np.minimum(1.0, np.maximum(0.0, self._free[:, wanted]) / claim[wanted])
        shares = parts.min(axis=1, initial=1.0)
        able = self._fixed[row] & ~lacks
        return [int(column) for column in np.argsort(-shares, kind="stable") if able[column]]

    def _fit_into(self, available: Floats) -> Bools:
        lacks = (self._claims > available + TOLERANCE) & self._claimed
        fits: Bools = np.logical_not(lacks.any(axis=1))
        return fits

    def _can_ever(self, samples: Sequence[QueuedJob]) -> Bools:
        """Tell which kinds each cluster could hold if it were empty: what a pass cannot change."""
        may = np.zeros((len(samples), len(self._rooms)), dtype=np.bool_)
        for column, amounts in enumerate(self._clusters):
            unknown = (self._claimed & amounts.unknown).any(axis=1)
            if not any(check(_NOBODY, self._rooms[column], self._rules) for check in _LASTING):
                may[:, column] = self._fit_into(amounts.capacity) & ~unknown
        columns = {room.name: column for column, room in enumerate(self._rooms)}
        for row, job in enumerate(samples):
            for name in (*job.avoid, *(cluster for cluster, _ in job.unfit)):
                if name in columns:
                    may[row, columns[name]] = False
        return may

    def _bonus(
        self, part: score.Part, kind: Callable[[QueuedJob], Hashable], samples: Sequence[QueuedJob]
    ) -> Floats:
        """Ask for a part of the score once for all jobs that are the same to it."""
        rows: dict[Hashable, list[float]] = {}
        for job in samples:
            if kind(job) not in rows:
                rows[kind(job)] = [part(job, room, self._rules) for room in self._rooms]
        return np.array([rows[kind(job)] for job in samples], dtype=np.float64)

    def _of_room(self, room: Room) -> _Amounts:
        capacity = np.array(self._amounts(room.capacity))
        unknown = [room.view.snapshot.total is None and name not in room.capacity for name in self._names]
        return _Amounts(
            capacity=capacity,
            divisor=np.where(capacity == 0, 1.0, capacity),
            has_any=capacity != 0,
            unknown=np.array(unknown, dtype=np.bool_),
        )

    def _amounts(self, resources: Resources) -> list[float]:
        return [resources.get(name, 0.0) for name in self._names]


#: The parts of a score that do not change during a pass, in their order, and what of a job they look at.
_BONUSES: tuple[tuple[score.Part, Callable[[QueuedJob], Hashable]], ...] = (
    (score.prefer, lambda _job: None),
    (score.tags, lambda job: job.tags),
    (score.warm, lambda job: job.env_key),
    (score.gpu, lambda job: bool(job.claim.get("GPU"))),
)
#: For checks that look at the cluster only.
_NOBODY = QueuedJob(submission_id="", seq=0, user="", priority=0, waiting_since=0.0, claim={})
