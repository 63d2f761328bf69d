"""Whose turn is it? Higher priority first, then the user who holds least, then who came first.

A user holds the dominant share: of each resource, what live jobs and the placements of this pass claim of all
that the clusters have together; the largest of these shares counts. Placing a job moves its user back.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from ray_multicluster_scheduler.model.decision import QueuedJob
from ray_multicluster_scheduler.model.resources import Resources, plus

#: Share, then age and id of the user's oldest waiting job, then the user.
_Turn = tuple[float, int, str, str]


class Shares:
    """What each user holds of all that the clusters have together."""

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


class FairOrder:
    """Iterate to get the waiting jobs, each when it is its turn; `charge` what gets a place in between."""

    def __init__(
        self, queue: Iterable[QueuedJob], *, total: Resources, in_use: Mapping[str, Resources]
    ) -> None:
        self._queue = sorted(queue, key=lambda job: (-job.priority, job.seq, job.submission_id))
        self._shares = Shares(total=total, in_use=in_use)

    def __iter__(self) -> Iterator[QueuedJob]:
        for _, level in groupby(self._queue, key=lambda job: job.priority):
            lines: defaultdict[str, deque[QueuedJob]] = defaultdict(deque)
            for job in level:
                lines[job.user].append(job)
            turns = [self._turn(line[0]) for line in lines.values()]
            heapq.heapify(turns)
            while turns:
                line = lines[turns[0][-1]]
                yield line.popleft()
                if line:
                    heapq.heapreplace(turns, self._turn(line[0]))
                else:
                    heapq.heappop(turns)

    def charge(self, job: QueuedJob) -> None:
        """Count a placement for its user."""
        self._shares.charge(job.user, job.claim)

    def _turn(self, job: QueuedJob) -> _Turn:
        return (self._shares.of(job.user), job.seq, job.submission_id, job.user)
