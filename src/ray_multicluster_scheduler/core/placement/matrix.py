"""The score of every cluster for every kind of job, as one matrix that is kept up to date.

It is derived from checks.py and scoring.py, with identical results to the last bit. Each rule is evaluated
once for all jobs and clusters with equal inputs (signature.py), and claims are compared with amounts as
arrays. A placement changes one cluster, so one column is computed again, for all kinds at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ray_multicluster_scheduler.core.placement import checks, scoring
from ray_multicluster_scheduler.core.placement.capacity import Room
from ray_multicluster_scheduler.core.placement.checks import ResourceCheck
from ray_multicluster_scheduler.core.placement.scoring import Part, Rule
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.decision import QueuedJob, Refusal
from ray_multicluster_scheduler.model.resources import TOLERANCE, Resources

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

Item = TypeVar("Item")


class Matrix:
    """Rows are kinds of jobs, columns are clusters by name. Minus infinity means that a check refuses."""

    def __init__(self, kinds: Sequence[QueuedJob], rooms: Sequence[Room], rules: PlanRules) -> None:
        self._kinds = kinds
        self._rooms = rooms
        self._rules = rules
        self._resources = sorted({name for job in kinds for name in job.claim})
        #: By resource, then by kind; the third axis has length one, to broadcast over clusters.
        self._claims = self._by_resource([job.claim for job in kinds])[:, :, None]
        claimed = [[name in job.claim for job in kinds] for name in self._resources]
        self._claimed = np.array(claimed, dtype=np.bool_).reshape(len(self._resources), len(kinds), 1)
        self._prepare_fit()
        self._prepare_parts()
        self._prepare_checks()
        self._preferred = np.flatnonzero([room.view.spec.prefer for room in rooms])
        self.totals = np.full((len(kinds), len(rooms)), -np.inf)
        for column in range(len(rooms)):
            self._read(column)
        self._compute(slice(None))

    # -- queries

    def best(self, row: int) -> int | None:
        """Return the best cluster for a kind of job; among equals, the first by name."""
        if not self._rooms:
            return None
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
        """Return the number of clusters that could take a kind of job now."""
        return int(np.count_nonzero(self.totals[row] != -np.inf))

    def could_hold(self, row: int) -> list[Room]:
        """Return the clusters that could take a kind of job if they were empty."""
        return [self._rooms[column] for column in np.flatnonzero(self._lasting[row]).tolist()]

    def is_narrowest(self, row: int) -> bool:
        """Tell whether no other kind claims less: such a job fits wherever any job fits."""
        mine = self._claims[:, row : row + 1]
        at_most = (self._claims <= mine + TOLERANCE).all(axis=0)
        less = (self._claims < mine - TOLERANCE).any(axis=0)
        return not bool((at_most & less).any())

    # -- changes

    def refresh(self, column: int) -> None:
        """Compute a column again after its cluster has changed."""
        self._read(column)
        if self._open[:, column].any():
            self._compute(slice(column, column + 1))
        else:
            self.totals[:, column] = -np.inf

    def _read(self, column: int) -> None:
        """Read the present amounts of a cluster."""
        room = self._rooms[column]
        self._free[:, column] = self._amounts(room.free)
        offered = [check.amounts(room) for check in self._comparisons]
        self._available[:, column] = [
            min([amounts.get(name, 0.0) for amounts in offered], default=math.inf) for name in self._resources
        ]
        is_open = not any(ask(room) is not None for ask in self._cluster_checks)
        self._open[:, column] = is_open
        for check, jobs, kind_of in self._room_checks if is_open else ():
            may = [check(job, room, self._rules) is None for job in jobs]
            self._open[:, column] &= np.array(may, dtype=np.bool_)[kind_of]

    def _compute(self, columns: slice) -> None:
        """Compute the totals of some columns: the formula of scoring.py, from left to right."""
        may = self._lasting[:, columns] & self._open[:, columns] & self._fits(self._available[:, columns])
        totals = self._share[:, columns].copy()
        for number in range(len(self._resources)):
            share = (self._free[number, columns] - self._claims[number]) / self._divisor[number, columns]
            np.minimum(totals, share, out=totals, where=self._counts[number, :, columns])
        if self._rules.best_fit:
            totals = 1.0 - totals
        for factor in self._factors:
            totals *= factor[:, columns]
        for bonus in self._bonuses:
            totals += bonus[:, columns]
        self.totals[:, columns] = np.where(may, totals, -np.inf)

    # -- preparation

    def _prepare_fit(self) -> None:
        capacity = self._by_resource([room.capacity for room in self._rooms])
        self._divisor = np.where(capacity == 0, 1.0, capacity)
        self._free = np.zeros_like(capacity)
        #: By resource: which kinds claim it, on which of the clusters that have it.
        self._counts = self._claimed & (capacity != 0)[:, None, :]
        #: Initial free share: 1 if the job claims nothing that the cluster has, else the minimum is computed.
        self._share = np.where(self._counts.any(axis=0), np.inf, 1.0)

    def _prepare_parts(self) -> None:
        """Compute the parts of the score, without factors that are all 1 and bonuses that are all 0."""
        self._factors = [grid for part in scoring.FACTORS if (grid := self._part(part, neutral=1.0)).size]
        self._bonuses = [grid for part in scoring.BONUSES if (grid := self._part(part, neutral=0.0)).size]

    def _part(self, part: Part, *, neutral: float) -> Floats:
        if part.changes:
            raise TypeError(f"{part.name}: a part of the score must not look at the room; `fit` does")
        grid = self._grid(part, lambda job, room: part(job, room, self._rules))
        return grid if (grid != neutral).any() else np.empty((0, 0))

    def _prepare_checks(self) -> None:
        #: By kind and cluster.
        self._open = np.zeros((len(self._kinds), len(self._rooms)), dtype=np.bool_)
        self._lasting = np.ones((len(self._kinds), len(self._rooms)), dtype=np.bool_)
        #: Checks that depend only on the changing cluster.
        self._cluster_checks: list[Callable[[Room], Refusal | None]] = []
        #: Those that depend on the job too: with the jobs that differ for them, and which kind is like which.
        self._room_checks: list[tuple[Rule[Refusal | None], list[QueuedJob], list[int]]] = []
        #: Changing amounts that claims are compared with: by resource and cluster, the minimum of all.
        self._comparisons: list[ResourceCheck] = []
        self._available = np.zeros((len(self._resources), len(self._rooms)))
        for check in checks.CHECKS:
            if isinstance(check, ResourceCheck) and check.changes:
                self._comparisons.append(check)
            elif isinstance(check, ResourceCheck):
                self._lasting &= self._fits(self._by_resource([check.amounts(room) for room in self._rooms]))
            elif not check.changes:
                self._lasting &= self._accepts(check)
            elif check.job:
                jobs, kind_of = _distinct(self._kinds, tuple(map(check.job_key, self._kinds)))
                self._room_checks.append((check, jobs, kind_of))
            else:
                alone = not check.cluster and not check.with_rules
                self._cluster_checks.append(check.function if alone else partial(self._ask, check))

    def _ask(self, check: Rule[Refusal | None], room: Room) -> Refusal | None:
        return check(_ANY_JOB, room, self._rules)

    def _accepts(self, check: Rule[Refusal | None]) -> Bools:
        return self._grid(check, lambda job, room: check(job, room, self._rules) is None).astype(np.bool_)

    def _fits(self, available: Floats) -> Bools:
        """Tell which kinds of jobs fit into these amounts."""
        fits = np.ones((len(self._kinds), available.shape[1]), dtype=np.bool_)
        for number in range(len(self._resources)):
            fits &= ~(self._claimed[number] & (self._claims[number] > available[number] + TOLERANCE))
        return fits

    def _grid(self, rule: Rule[Any], ask: Callable[[QueuedJob, Room], float]) -> Floats:
        """Evaluate a rule once for all equal jobs and clusters, and spread the results over all of them.

        Results for the same jobs and clusters of the last pass are reused.
        """
        job_keys = tuple(map(rule.job_key, self._kinds))
        cluster_keys = tuple(map(rule.cluster_key, self._rooms))
        about = self._rules, job_keys, cluster_keys
        last_said = rule.last_said  # read once: a pass on another thread may replace it at any time
        if last_said is not None and last_said[0] == about:
            saved: Floats = last_said[1]
            return saved
        jobs, row_of = _distinct(self._kinds, job_keys)
        rooms, column_of = _distinct(self._rooms, cluster_keys)
        answers = np.array([[ask(job, room) for room in rooms] for job in jobs], dtype=np.float64)
        grid = answers.reshape(len(jobs), len(rooms))[np.ix_(row_of, column_of)]
        rule.last_said = about, grid
        return grid

    def _by_resource(self, amounts: Sequence[Resources]) -> Floats:
        table = [[each.get(name, 0.0) for each in amounts] for name in self._resources]
        return np.array(table, dtype=np.float64).reshape(len(self._resources), len(amounts))

    def _amounts(self, resources: Resources) -> list[float]:
        return [resources.get(name, 0.0) for name in self._resources]


def _distinct(items: Sequence[Item], keys: Sequence[Hashable]) -> tuple[list[Item], list[int]]:
    """Return one item for each key, and for each item the index of its representative."""
    first: list[Item] = []
    numbers: dict[Hashable, int] = {}
    stands_for = []
    for item, key in zip(items, keys, strict=True):
        number = numbers.setdefault(key, len(first))
        if number == len(first):
            first.append(item)
        stands_for.append(number)
    return first, stands_for


#: For checks that do not depend on the job.
_ANY_JOB = QueuedJob(submission_id="", seq=0, user="", priority=0, waiting_since=0.0, claim={})
