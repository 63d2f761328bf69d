"""The planner: one deterministic pass over the whole queue, with one frozen view of every cluster.

For each job in its turn: filter (checks.py), score (scoring.py), take the best cluster, and count the job's
claim there for the jobs after it. Jobs of one kind get the same decision, so the cost of a pass depends on
the number of kinds: a line of jobs is left as soon as one of them cannot be placed, because within a pass
clusters only fill up. To explain a job deep in the queue, the same pass continues through all jobs
(`everyone`).

The order of turns: higher priority first; within a priority first the starved jobs (reservation.py), then the
user with the smallest share, then the oldest job.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ray_multicluster_scheduler.core.placement.capacity import Room, open_rooms, total_capacity
from ray_multicluster_scheduler.core.placement.checks import objection, with_last_resorts
from ray_multicluster_scheduler.core.placement.fair_share import Shares, Turns
from ray_multicluster_scheduler.core.placement.opinions import Opinion, why
from ray_multicluster_scheduler.core.placement.plan_rules import PlanRules
from ray_multicluster_scheduler.core.placement.preference import (
    after_first_look,
    awaited,
    is_worth_a_wait,
    patience_s,
    with_preferred,
)
from ray_multicluster_scheduler.core.placement.queue import Line, Waiter
from ray_multicluster_scheduler.core.placement.reservation import (
    expected_rooms,
    has_waited_too_long,
    reserve,
)
from ray_multicluster_scheduler.core.placement.scoring import claims_differ, score
from ray_multicluster_scheduler.model.decision import (
    ClusterView,
    Placement,
    Plan,
    QueuedJob,
    Refusal,
    Score,
    Waiting,
)
from ray_multicluster_scheduler.model.resources import Resources

if TYPE_CHECKING:
    from ray_multicluster_scheduler.core.placement.matrix import Matrix

#: With more clusters than this, a placement explains only the chosen one and counts the others.
EXPLAINED_CLUSTERS = 32


@dataclass(slots=True, kw_only=True, eq=False)
class _Entry:
    """Iteration state of one line of the queue within a pass."""

    line: Line
    #: Its row in the matrix, and the job that represents it there.
    row: int
    job: QueuedJob
    rest: Iterator[Waiter]
    next: Waiter
    #: No cluster can take a job of this line any more.
    full: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """A job that cannot be placed in its turn. During the turn, `PlanningPass.waiting` says why."""

    entry: _Entry
    submission_id: str
    position: int
    #: Why it waits although a cluster could take it, if one could.
    later: Refusal | None


class PlanningPass:
    """The state of one pass: the clusters as they fill up, job by job."""

    def __init__(
        self,
        lines: Sequence[Line],
        views: Sequence[ClusterView],
        *,
        now: float,
        rules: PlanRules,
        in_use: Mapping[str, Resources],
    ) -> None:
        self.rooms = open_rooms(views)
        self._now = now
        claims = [line.sample.claim for line in lines] + [h.claim for v in views for h in v.holdings]
        self._rules = replace(rules, best_fit=True) if claims_differ(claims) else rules
        self._shares = Shares(total=total_capacity(self.rooms), in_use=in_use)
        self._unseen = awaited(self.rooms)
        self._patience_s = patience_s((room.view.snapshot for room in self.rooms), rules)
        self._columns = {room.name: column for column, room in enumerate(self.rooms)}
        rows: dict[Hashable, int] = {}
        self._kinds: list[QueuedJob] = []
        self._levels: dict[int, list[tuple[Line, int]]] = {}
        for line in lines:
            row = rows.setdefault(line.kind, len(self._kinds))
            if row == len(self._kinds):
                self._kinds.append(with_last_resorts(line.sample, self.rooms, self._rules))
            self._levels.setdefault(line.sample.priority, []).append((line, row))
        self._matrix = _matrix()(self._kinds, self.rooms, self._rules)
        self._opinions: dict[int, Opinion] = {}
        #: The job with a reservation, and its room.
        self._reserved: tuple[str, Room] | None = None
        self._narrowest: dict[int, bool] = {}
        self._position = 0

    def turns(self, *, everyone: bool) -> Iterator[Placement | Turn]:
        """Yield each placement in order; with `everyone` also each waiting job."""
        if not everyone and (self._unseen or not self.rooms):
            return
        for _, level in sorted(self._levels.items(), reverse=True):
            entries = [entry for line, row in level if (entry := self._enter(line, row)) is not None]
            if not self._unseen and self._reserved is None:
                yield from self._oldest_first(entries)
            yield from self._by_share(entries, everyone=everyone)

    def waiting(self, turn: Turn) -> Waiting:
        """Say why a job waits, from the clusters as they are in its turn."""
        said = self._opinion(turn.entry)
        refusals = said.refusals
        if turn.later is not None:
            refusals = {**refusals, **dict.fromkeys(said.scores, turn.later)}
        reserved_on = None
        if self._reserved is not None and self._reserved[0] == turn.submission_id:
            room = self._reserved[1]  # reserved for this job, so this is not the reason for its wait
            refusal = objection(turn.entry.job, replace(room, kept_for=None), self._rules)
            refusals = {**refusals, room.name: refusal or refusals[room.name]}
            reserved_on = room.name
        return Waiting(
            submission_id=turn.submission_id,
            refusals=refusals,
            position=turn.position,
            reserved_on=reserved_on,
        )

    # -- turns

    def _enter(self, line: Line, row: int) -> _Entry | None:
        """Return the state of a line at the start of a pass; None for an empty line."""
        rest = line.in_turn()
        first = next(rest, None)
        if first is None:
            return None
        job, preferred = self._kinds[row], line.sample.preferred_cluster
        if job.preferred_cluster != preferred:
            job = replace(job, preferred_cluster=preferred)
        return _Entry(line=line, row=row, job=job, rest=rest, next=first)

    def _oldest_first(self, entries: Sequence[_Entry]) -> Iterator[Placement]:
        """Place the starved jobs, oldest first, and reserve room for the first that fits nowhere.

        Among jobs of equal size the normal turns suffice: this is needed only if smaller jobs wait as well.
        """
        oldest = [_by_age(entry) for entry in entries if self._has_waited_too_long(entry)]
        heapq.heapify(oldest)
        while oldest:
            entry = oldest[0][-1]
            if self._is_narrowest(entry.row):
                heapq.heappop(oldest)
                continue
            column = self._choose(entry)
            if column is None:
                if self._reserve(entry):
                    return
                heapq.heappop(oldest)
                continue
            yield self._place(entry, column)
            entry.next = next(entry.rest, _NOBODY)
            if entry.next is not _NOBODY and self._has_waited_too_long(entry):
                heapq.heapreplace(oldest, _by_age(entry))
            else:
                heapq.heappop(oldest)

    def _has_waited_too_long(self, entry: _Entry) -> bool:
        return has_waited_too_long(entry.next.waiting_since, now=self._now, rules=self._rules)

    def _is_narrowest(self, row: int) -> bool:
        if row not in self._narrowest:
            self._narrowest[row] = self._matrix.is_narrowest(row)
        return self._narrowest[row]

    def _reserve(self, entry: _Entry) -> bool:
        """Reserve room for a job that fits nowhere now; False if no cluster is expected to have room."""
        waiter = entry.next
        job = replace(
            entry.job,
            submission_id=waiter.submission_id,
            seq=waiter.seq,
            waiting_since=waiter.waiting_since,
        )
        able = self._matrix.could_hold(entry.row)
        expected = expected_rooms(job, able, now=self._now, rules=self._rules)
        if not expected:
            return False
        room = reserve(job, expected, now=self._now, rules=self._rules)
        if room is not None:
            self._reserved = job.submission_id, room
            self._matrix.refresh(self._columns[room.name])
        return True

    def _by_share(self, entries: Sequence[_Entry], *, everyone: bool) -> Iterator[Placement | Turn]:
        """Give the jobs of one priority their turns: the user with the smallest share, the oldest job."""
        turns: Turns[_Entry] = Turns(self._shares)
        for entry in entries:
            if entry.next is not _NOBODY:
                turns.put(entry.line.sample.user, entry.next.seq, entry.next.submission_id, entry)
        turns.start()
        while (first := turns.first()) is not None:
            entry, decided = first, self._decide(first)
            if everyone or isinstance(decided, Placement):
                yield decided
            entry.next = next(entry.rest, _NOBODY)
            if entry.next is not _NOBODY and (everyone or not entry.full):
                turns.next(entry.next.seq, entry.next.submission_id)
            else:
                turns.drop()

    # -- one job

    def _decide(self, entry: _Entry) -> Placement | Turn:
        column = None if entry.full else self._choose(entry)
        later = None
        if self._unseen:
            later, column = after_first_look(self._unseen), None
        elif column is None:
            entry.full = True
        elif self._waits_for_preferred(entry):
            later, column = with_preferred(str(entry.job.preferred_cluster)), None
        if column is not None:
            return self._place(entry, column)
        self._position += 1
        return Turn(entry, entry.next.submission_id, self._position, later)

    def _choose(self, entry: _Entry) -> int | None:
        column = self._columns.get(entry.job.preferred_cluster or "")
        if column is not None and self._matrix.allows(entry.row, column):
            return column
        return self._matrix.best(entry.row)

    def _waits_for_preferred(self, entry: _Entry) -> bool:
        """Tell whether a job waits for its preferred cluster although another one has room, and count it."""
        column = self._columns.get(entry.job.preferred_cluster or "")
        if column is None or self._has_waited_too_long(entry):
            return False
        room = self.rooms[column]
        refusal = objection(entry.job, room, self._rules)
        waits = is_worth_a_wait(room, refusal, now=self._now, patience_s=self._patience_s)
        room.waited_for += waits
        return waits

    def _place(self, entry: _Entry, column: int) -> Placement:
        room = self.rooms[column]
        scores, refusals, candidates = self._explained(entry, column)
        room.place(entry.job.claim)
        self._shares.charge(entry.line.sample.user, entry.job.claim)
        self._matrix.refresh(column)
        return Placement(
            submission_id=entry.next.submission_id,
            cluster=room.name,
            scores=scores,
            refusals=refusals,
            sentence=why(entry.job, room, candidates, refusals),
        )

    def _explained(
        self, entry: _Entry, column: int
    ) -> tuple[Mapping[str, Score], Mapping[str, Refusal], int]:
        """Return scores and refusals: of all clusters, or only of the chosen one if there are many."""
        if len(self.rooms) <= EXPLAINED_CLUSTERS:
            said = self._opinion(entry)
            return said.scores, said.refusals, len(said.scores)
        room, job = self.rooms[column], entry.job
        preferred = self._columns.get(job.preferred_cluster or "")
        refusal = None if preferred is None else objection(job, self.rooms[preferred], self._rules)
        refusals = {job.preferred_cluster: refusal} if refusal and job.preferred_cluster else {}
        candidates = self._matrix.candidates(entry.row)
        return {room.name: score(job, room, self._rules)}, refusals, candidates

    def _opinion(self, entry: _Entry) -> Opinion:
        if entry.row not in self._opinions:
            self._opinions[entry.row] = Opinion(self._kinds[entry.row], self.rooms, self._rules)
        return self._opinions[entry.row].refresh()


def placements(
    lines: Sequence[Line],
    views: Sequence[ClusterView],
    *,
    now: float,
    rules: PlanRules,
    in_use: Mapping[str, Resources],
) -> Iterator[Placement]:
    """Yield the placements of one pass in order. `in_use` are the claims of each user's live jobs."""
    if lines:
        one_pass = PlanningPass(lines, views, now=now, rules=rules, in_use=in_use)
        yield from (each for each in one_pass.turns(everyone=False) if isinstance(each, Placement))


def decisions(
    lines: Sequence[Line],
    views: Sequence[ClusterView],
    *,
    now: float,
    rules: PlanRules,
    in_use: Mapping[str, Resources],
) -> Iterator[Placement | Waiting]:
    """Yield the decision about each job in its turn; it is never revised."""
    one_pass = PlanningPass(lines, views, now=now, rules=rules, in_use=in_use)
    for each in one_pass.turns(everyone=True):
        yield each if isinstance(each, Placement) else one_pass.waiting(each)


def plan(
    lines: Sequence[Line],
    views: Sequence[ClusterView],
    *,
    now: float,
    rules: PlanRules,
    in_use: Mapping[str, Resources],
) -> Plan:
    """Decide about every waiting job."""
    decided = tuple(decisions(lines, views, now=now, rules=rules, in_use=in_use))
    return Plan(
        placements=tuple(each for each in decided if isinstance(each, Placement)),
        waiting=tuple(each for each in decided if isinstance(each, Waiting)),
    )


def decide(submission_id: str, one_pass: PlanningPass) -> Placement | Waiting:
    """Return the decision about one job. The rooms of the pass stay as they are in the job's turn."""
    for each in one_pass.turns(everyone=True):
        if each.submission_id == submission_id:
            return each if isinstance(each, Placement) else one_pass.waiting(each)
    raise KeyError(submission_id)


#: Marks the end of a line.
_NOBODY = Waiter(-1, "", 0.0)


def _by_age(entry: _Entry) -> tuple[float, int, str, _Entry]:
    """Return a heap key. Ids are unique, so the entries themselves are never compared."""
    return entry.next.waiting_since, entry.next.seq, entry.next.submission_id, entry


def warm_up() -> None:
    """Import the modules of the first pass during the first probe: numpy takes as long as that."""
    _matrix()


def _matrix() -> type[Matrix]:
    from ray_multicluster_scheduler.core.placement.matrix import Matrix  # noqa: PLC0415 - see `warm_up`

    return Matrix
