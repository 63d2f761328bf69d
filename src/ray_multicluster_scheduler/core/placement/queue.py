"""The leader's queue in memory, and whose turn it is.

Jobs of one kind, which get equal decisions, are in one line. The cost of a planner pass then depends on the
number of kinds, not of jobs. Of each job only its position in the line is kept; all other fields are stored
once per line.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from typing import Generic, TypeVar

from ray_multicluster_scheduler.core.placement import checks, scoring
from ray_multicluster_scheduler.core.placement.capacity import open_rooms
from ray_multicluster_scheduler.core.placement.checks import Check, has_failed_everywhere
from ray_multicluster_scheduler.core.placement.scoring import Part, job_key
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.decision import ClusterView, QueuedJob
from ray_multicluster_scheduler.model.resources import Resources, plus

# Kinds of jobs: for two jobs of one kind, every check and every score gives the same result.


def placement_key(job: QueuedJob) -> Hashable:
    """Return a value that is equal for jobs of one kind: all inputs of the rules."""
    return _key_of((*checks.CHECKS, scoring.FIT, *scoring.FACTORS, *scoring.BONUSES))(job)


@lru_cache(maxsize=4)
def _key_of(rules: tuple[Check | Part, ...]) -> Callable[[QueuedJob], Hashable]:
    return job_key({name for rule in rules for name in rule.job})


@dataclass(frozen=True, slots=True)
class Waiter:
    """The position of one job in its line."""

    seq: int
    submission_id: str
    waiting_since: float


@dataclass(slots=True, kw_only=True, eq=False)
class Line:
    """Jobs of one user, priority and kind, oldest first."""

    #: Any job of the line: all inputs of a decision are equal, except the age.
    sample: QueuedJob
    #: The key of the kind (`placement_key`).
    kind: Hashable
    waiters: dict[str, Waiter] = field(default_factory=dict)
    #: A lower bound for the time since when the jobs wait.
    oldest: float = float("inf")
    in_order: bool = True

    def put(self, waiter: Waiter) -> None:
        """Add a job. A job that returns from a cluster is sorted in before the next pass."""
        if self.waiters and waiter.seq < next(reversed(self.waiters.values())).seq:
            self.in_order = False
        self.waiters[waiter.submission_id] = waiter
        self.oldest = min(self.oldest, waiter.waiting_since)

    def in_turn(self) -> Iterator[Waiter]:
        """Yield the jobs in order; the line must not change meanwhile."""
        if not self.in_order:
            ordered = sorted(self.waiters.values(), key=lambda waiter: (waiter.seq, waiter.submission_id))
            self.waiters = {waiter.submission_id: waiter for waiter in ordered}
            self.in_order = True
        return iter(self.waiters.values())


class JobQueue:
    """All waiting jobs. Jobs that wait for a time or for other jobs enter their lines after that."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, Line] = {}
        self._line_of: dict[str, Line] = {}
        #: When a job may go to its line: a heap of (not_before, submission_id).
        self._later: list[tuple[float, str]] = []
        self._aside: dict[str, QueuedJob] = {}
        #: The open dependencies of a job, and the dependents of a job.
        self._needs: dict[str, set[str]] = {}
        self._needed_by: dict[str, dict[str, None]] = {}
        #: Deadlines of waiting jobs: a heap that may contain jobs which have left the queue.
        self._deadlines: list[float] = []
        #: The highest `seq` of all jobs that were ever put here.
        self.newest_seq = 0

    def __len__(self) -> int:
        return len(self._line_of) + len(self._aside)

    def put(
        self,
        job: QueuedJob,
        *,
        not_before: float = 0.0,
        needs: Collection[str] = (),
        deadline: float | None = None,
    ) -> None:
        """Add or replace a job, with its open dependencies and the deadline of its wait."""
        self.remove([job.submission_id])
        self.newest_seq = max(self.newest_seq, job.seq)
        if deadline is not None:
            heapq.heappush(self._deadlines, deadline)
        if needs:
            self._aside[job.submission_id] = job
            self._needs[job.submission_id] = set(needs)
            for need in needs:
                self._needed_by.setdefault(need, {})[job.submission_id] = None
        elif not_before > 0:
            self._aside[job.submission_id] = job
            heapq.heappush(self._later, (not_before, job.submission_id))
        else:
            self._line_up(job)

    def remove(self, submission_ids: Iterable[str]) -> None:
        """Remove jobs; unknown ids are ignored."""
        for submission_id in submission_ids:
            self._aside.pop(submission_id, None)
            for need in self._needs.pop(submission_id, ()):
                waiting = self._needed_by[need]
                del waiting[submission_id]
                if not waiting:
                    del self._needed_by[need]
            line = self._line_of.pop(submission_id, None)
            if line is not None:
                del line.waiters[submission_id]

    def succeeded(self, submission_id: str) -> None:
        """Move the jobs whose last open dependency was this job to their lines."""
        for waiting in self._needed_by.pop(submission_id, ()):
            needs = self._needs.get(waiting)
            if needs is not None:
                needs.discard(submission_id)
                if not needs:
                    del self._needs[waiting]
                    self._line_up(self._aside.pop(waiting))

    def needs(self, submission_id: str) -> list[str]:
        """Return the open dependencies of a job, in order."""
        return sorted(self._needs.get(submission_id, ()))

    def is_needed(self, submission_id: str) -> bool:
        """Tell whether a job in the queue depends on this one."""
        return submission_id in self._needed_by

    def passed_deadline(self, *, now: float) -> bool:
        """Tell whether the deadline of some job may have passed since the last call."""
        passed = False
        while self._deadlines and self._deadlines[0] <= now:
            heapq.heappop(self._deadlines)
            passed = True
        return passed

    def next_change_at(self) -> float | None:
        """Return the next time at which a job becomes ready or passes its deadline; None if there is none."""
        return min(
            [*(at for at, _ in self._later[:1]), *self._deadlines[:1]],
            default=None,
        )

    def lines(self, *, now: float) -> tuple[Line, ...]:
        """Return the lines of the jobs that may start now."""
        while self._later and self._later[0][0] <= now:
            _, submission_id = heapq.heappop(self._later)
            job = self._aside.get(submission_id)
            if job is not None and submission_id not in self._needs:
                del self._aside[submission_id]
                self._line_up(job)
        self._lines = {key: line for key, line in self._lines.items() if line.waiters}
        return tuple(self._lines.values())

    def aside(self) -> tuple[list[QueuedJob], list[QueuedJob]]:
        """Return the jobs that wait for other jobs, and those that wait for a time."""
        needing = [self._aside[each] for each in self._needs]
        later = [job for name, job in self._aside.items() if name not in self._needs]
        return needing, later

    def _line_up(self, job: QueuedJob) -> None:
        key = line_key(job)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(sample=job, kind=key[-1])
        line.put(Waiter(job.seq, job.submission_id, job.waiting_since))
        self._line_of[job.submission_id] = line


def with_job(lines: Sequence[Line], job: QueuedJob) -> tuple[Line, ...]:
    """Return these lines with one more job; the lines themselves stay as they are."""
    key = line_key(job)
    own = [line for line in lines if line_key(line.sample) == key]
    longer = replace(own[0], waiters=dict(own[0].waiters)) if own else Line(sample=job, kind=key[-1])
    longer.put(Waiter(job.seq, job.submission_id, job.waiting_since))
    return (*(line for line in lines if line not in own), longer)


def line_key(job: QueuedJob) -> tuple[int, str, str | None, Hashable]:
    """Return all inputs of a decision, except the job's age and id."""
    return job.priority, job.user, job.preferred_cluster, placement_key(job)


def line_name(job: QueuedJob) -> str:
    """Return a short text that is equal for jobs of one line, in every process."""
    return sha256(repr(line_key(job)).encode()).hexdigest()[:16]


def queue_of(jobs: Iterable[QueuedJob]) -> JobQueue:
    """Return a queue of jobs that may all start now."""
    queue = JobQueue()
    for job in jobs:
        queue.put(job)
    return queue


Item = TypeVar("Item")


def unworkable_lines(
    lines: Sequence[Line], views: Sequence[ClusterView], rules: PlanRules
) -> list[tuple[Line, str]]:
    """Return the lines of jobs whose environment has failed wherever it could be tried, each with the reason.

    The leader ends these jobs before it plans, so nobody else may count on them either.
    """
    is_cluster_picky = any(view.failing or view.ray_needs for view in views)
    asked = [line for line in lines if is_cluster_picky or line.sample.ray_needs]
    rooms = open_rooms(views) if asked else ()
    reasons = [(line, has_failed_everywhere(line.sample, rooms, rules)) for line in asked]
    return [(line, reason) for line, reason in reasons if reason is not None]


# Fair share: within a priority, the user with the smallest share goes first, with the oldest job.
#
# The dominant share of a user counts: for each resource, the claims of the user's live jobs and placements in
# this pass divided by the total of all clusters; the largest quotient. A placement increases it.


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
