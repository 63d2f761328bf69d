"""What every cluster is worth to every kind of job, as one table of numbers that is kept up to date.

It says the same as feasible.py and score.py, to the last bit: the same operations in the same order, on
arrays. A placement changes one cluster, so one column is computed anew, for all kinds at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ray_multicluster_scheduler.model.decision import QueuedJob
from ray_multicluster_scheduler.model.resources import TOLERANCE, Resources
from ray_multicluster_scheduler.policy import score
from ray_multicluster_scheduler.policy.feasible import (
    can_have_environment,
    has_allowance,
    has_driver_slot,
    has_supported_version,
    is_healthy,
    is_not_drained,
    is_not_throttled,
)
from ray_multicluster_scheduler.policy.ledger import Room
from ray_multicluster_scheduler.policy.rules import PlanRules

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

#: Checks that look at the cluster only; the first ones cannot change during a pass.
_LASTING = (is_healthy, is_not_drained, has_supported_version)
_PASSING = (is_not_throttled, has_driver_slot, has_allowance)


class ScoreTable:
    """Rows are kinds of jobs, columns are clusters by name; minus infinity: it may not go there now."""

    def __init__(self, samples: Sequence[QueuedJob], rooms: Sequence[Room], rules: PlanRules) -> None:
        self._rooms = rooms
        self._rules = rules
        self._names = sorted({name for job in samples for name in job.claim})
        #: By resource, then by kind; a third axis of one, so that clusters can stand beside.
        self._claims = self._by_resource([job.claim for job in samples])[:, :, None]
        claimed = [[name in job.claim for job in samples] for name in self._names]
        self._claimed = np.array(claimed, dtype=np.bool_).reshape(len(self._names), len(samples), 1)
        #: By resource, then by cluster.
        self._capacity = self._by_resource([room.capacity for room in rooms])
        self._divisor = np.where(self._capacity == 0, 1.0, self._capacity)
        self._free = np.zeros_like(self._capacity)
        self._free_for_others = np.zeros_like(self._capacity)
        self._ours = np.zeros_like(self._capacity)
        self._open = np.zeros(len(rooms), dtype=np.bool_)
        #: By resource: which kinds claim it on which clusters, of those that have any.
        self._counts = self._claimed & (self._capacity != 0)[:, None, :]
        #: Initial free share: 1.0 if the job claims none of the cluster's resources, else inf, lowered below.
        self._share = np.where(self._counts.any(axis=0), np.inf, 1.0)
        weight = np.array([room.view.spec.weight for room in rooms], dtype=np.float64)
        health = np.array([room.view.snapshot.score for room in rooms], dtype=np.float64)
        #: A factor of 1 and a bonus of 0 for everybody change no bit of a total.
        self._factors = [factor for factor in (weight, health) if (factor != 1.0).any()]
        bonuses = [self._bonus(part, kind, samples) for part, kind in _BONUSES]
        self._bonuses = [bonus for bonus in bonuses if bonus.any()]
        self._preferred = np.flatnonzero([room.view.spec.prefer for room in rooms])
        self._fixed = self._can_ever(samples)
        self.totals = np.full((len(samples), len(rooms)), -np.inf)
        for column in range(len(rooms)):
            self._read(column)
        self._compute(slice(None))

    def best(self, row: int) -> int | None:
        """Return the best cluster for a kind of job; the first by name among equals."""
        if self._preferred.size:
            column = int(self._preferred[self.totals[row, self._preferred].argmax()])
            if self.allows(row, column):
                return column
        column = int(self.totals[row].argmax())
        return column if self.allows(row, column) else None

    def allows(self, row: int, column: int) -> bool:
        """Tell whether a kind of job may go to a cluster now."""
        return bool(self.totals[row, column] != -np.inf)

    def candidates(self, row: int) -> int:
        """Return how many clusters would take a kind of job now."""
        return int(np.count_nonzero(self.totals[row] != -np.inf))

    def in_our_way(self, row: int) -> list[int]:
        """Return the clusters that could hold such a job if ours were gone, the freest of them first."""
        able, shares = self._fixed[row].copy(), np.ones(len(self._rooms))
        for number in range(len(self._names)):
            amount = float(self._claims[number, row, 0])
            if self._claimed[number, row, 0]:
                able &= ~(amount > self._free[number] + self._ours[number] + TOLERANCE)
            if amount > 0:
                shares = np.minimum(shares, np.maximum(0.0, self._free[number]) / amount)
        return [int(column) for column in np.argsort(-shares, kind="stable") if able[column]]

    def refresh(self, column: int) -> None:
        """Compute a column anew after its cluster has changed."""
        self._read(column)
        if self._open[column]:
            self._compute(slice(column, column + 1))
        else:
            self.totals[:, column] = -np.inf

    def _read(self, column: int) -> None:
        """Take over what a cluster has now."""
        room = self._rooms[column]
        self._free[:, column] = self._amounts(room.free)
        self._ours[:, column] = self._amounts(room.ours)
        kept = room.kept_for is not None
        self._free_for_others[:, column] = (
            self._amounts(room.free_for_others()) if kept else self._free[:, column]
        )
        self._open[column] = not (kept and room.slots <= 1) and not any(
            check(_NOBODY, room, self._rules) for check in _PASSING
        )

    def _compute(self, columns: slice) -> None:
        fits = self._fixed[:, columns] & self._open[columns]
        totals = self._share[:, columns].copy()
        for number in range(len(self._names)):
            claim, claimed = self._claims[number], self._claimed[number]
            fits &= ~(claimed & (claim > self._free_for_others[number, columns] + TOLERANCE))
            share = (self._free[number, columns] - claim) / self._divisor[number, columns]
            np.minimum(totals, share, out=totals, where=self._counts[number, :, columns])
        for factor in self._factors:
            totals *= factor[columns]
        for bonus in self._bonuses:
            totals += bonus[:, columns]
        self.totals[:, columns] = np.where(fits, totals, -np.inf)

    def _can_ever(self, samples: Sequence[QueuedJob]) -> Bools:
        """Tell which kinds each cluster could hold if it were empty: what a pass cannot change."""
        able = [not any(check(_NOBODY, room, self._rules) for check in _LASTING) for room in self._rooms]
        may: Bools = np.tile(np.array(able, dtype=np.bool_), (len(samples), 1))
        for number, name in enumerate(self._names):
            unknown = [room.view.snapshot.total is None and name not in room.capacity for room in self._rooms]
            lacks = (self._claims[number] > self._capacity[number] + TOLERANCE) | np.array(unknown)
            may &= ~(self._claimed[number] & lacks)
        columns = {room.name: column for column, room in enumerate(self._rooms)}
        #: The only clusters that can object to an environment which asks nothing of Ray.
        picky = [
            column for column, room in enumerate(self._rooms) if room.view.failing or room.view.ray_needs
        ]
        for row, job in enumerate(samples):
            for cluster in (*job.avoid, *(cluster for cluster, _ in job.unfit)):
                if cluster in columns:
                    may[row, columns[cluster]] = False
            for column in range(len(self._rooms)) if job.ray_needs else picky:
                if can_have_environment(job, self._rooms[column], self._rules):
                    may[row, column] = False
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

    def _by_resource(self, amounts: Sequence[Resources]) -> Floats:
        table = [[each.get(name, 0.0) for each in amounts] for name in self._names]
        return np.array(table, dtype=np.float64).reshape(len(self._names), len(amounts))

    def _amounts(self, resources: Resources) -> list[float]:
        return [resources.get(name, 0.0) for name in self._names]


#: The parts of a score that do not change during a pass, in their order, and what of a job they look at.
_BONUSES: tuple[tuple[score.Part, Callable[[QueuedJob], Hashable]], ...] = (
    (score.tags, lambda job: job.tags),
    (score.warm, lambda job: job.env_key),
    (score.gpu, lambda job: bool(job.claim.get("GPU"))),
)
#: For checks that look at the cluster only.
_NOBODY = QueuedJob(submission_id="", seq=0, user="", priority=0, waiting_since=0.0, claim={})
