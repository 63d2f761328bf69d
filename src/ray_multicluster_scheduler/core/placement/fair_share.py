"""Fair share: within a priority, the user with the smallest share goes first, with the oldest job.

The dominant share of a user counts: for each resource, the claims of the user's live jobs and placements in
this pass divided by the total of all clusters; the largest quotient. A placement increases it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from ray_multicluster_scheduler.model.resources import Resources, plus

Item = TypeVar("Item")


class Shares:
    """The shares of users in the total resources of all clusters."""

    def __init__(self, *, total: Resources, in_use: Mapping[str, Resources]) -> None:
        self._total = total
        self._held: dict[str, Resources] = dict(in_use)
        self._shares = {user: self._share(user) for user in in_use}

    def of(self, user: str) -> float:
        """Return the dominant share of a user."""
        return self._shares.get(user, 0.0)

    def charge(self, user: str, claim: Resources) -> None:
        """Count a placement."""
        self._held[user] = plus(self._held.get(user, {}), claim)
        self._shares[user] = self._share(user)

    def _share(self, user: str) -> float:
        held = self._held[user].items()
        return max(
            (amount / self._total[name] for name, amount in held if self._total.get(name)), default=0.0
        )


class Turns(Generic[Item]):
    """The order of turns within one priority: the user with the smallest share first, with the oldest job.

    An item is a line of jobs of one user, ordered by the age of the next job in it.
    """

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._of_user: dict[str, list[_Head[Item]]] = {}
        self._turns: list[tuple[float, int, str, str]] = []

    def put(self, user: str, seq: int, submission_id: str, item: Item) -> None:
        """Add a line with its next job; all lines are added before the first turn."""
        self._of_user.setdefault(user, []).append(_Head(seq, submission_id, item))

    def start(self) -> None:
        """Sort the lines that were added."""
        for heads in self._of_user.values():
            heapq.heapify(heads)
        self._turns = [self._turn(user) for user in self._of_user]
        heapq.heapify(self._turns)

    def first(self) -> Item | None:
        """Return the line whose turn it is; None if no line is left."""
        return self._of_user[self._turns[0][-1]][0].item if self._turns else None

    def next(self, seq: int, submission_id: str) -> None:
        """Continue the first line with this job; the share of its user may have grown."""
        user = self._turns[0][-1]
        heads = self._of_user[user]
        heapq.heapreplace(heads, _Head(seq, submission_id, heads[0].item))
        heapq.heapreplace(self._turns, self._turn(user))

    def drop(self) -> None:
        """Remove the first line."""
        user = self._turns[0][-1]
        heapq.heappop(self._of_user[user])
        if self._of_user[user]:
            heapq.heapreplace(self._turns, self._turn(user))
        else:
            heapq.heappop(self._turns)

    def _turn(self, user: str) -> tuple[float, int, str, str]:
        head = self._of_user[user][0]
        return self._shares.of(user), head.seq, head.submission_id, user


@dataclass(slots=True)
class _Head(Generic[Item]):
    """A line by the age of its next job, then by that job's id."""

    seq: int
    submission_id: str
    item: Item

    def __lt__(self, other: _Head[Item]) -> bool:
        return (self.seq, self.submission_id) < (other.seq, other.submission_id)
