"""Place what can be placed, of a queue of any length: the same choices as plan.py, at the cost of its kinds.

plan.py is the definition and decides about every job. Here a line of jobs is left as soon as one of them
finds no place: within a pass clusters only fill up, so those behind it find none either. Jobs past the
starvation limit are still considered, until no cluster can reserve capacity for that kind of job.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ray_multicluster_scheduler.model.decision import (
    ClusterView,
    Placement,
    QueuedJob,
    Refusal,
    Score,
)
from ray_multicluster_scheduler.model.resources import Resources
from ray_multicluster_scheduler.policy.backlog import Line, Waiter
from ray_multicluster_scheduler.policy.feasible import (
    GOES_BY,
    awaited,
    heed_avoid,
    is_worth_a_wait,
    objection,
    patience_s,
)
from ray_multicluster_scheduler.policy.ledger import Room, open_rooms, total_capacity
from ray_multicluster_scheduler.policy.order import Shares
from ray_multicluster_scheduler.policy.plan import Opinions, why
from ray_multicluster_scheduler.policy.rules import PlanRules
from ray_multicluster_scheduler.policy.score import score

if TYPE_CHECKING:
    from ray_multicluster_scheduler.policy.table import ScoreTable

#: With more clusters than this a placement tells of the chosen one only, and how many others there were.
EXPLAINED_CLUSTERS = 32


def placements(
    lines: Sequence[Line],
    views: Sequence[ClusterView],
    *,
    now: float,
    rules: PlanRules,
    in_use: Mapping[str, Resources],
) -> Iterator[Placement]:
    """Yield the placements of one pass in their order. `in_use`: what each user's live jobs hold."""
    rooms = open_rooms(views)
    if not rooms or not lines or awaited(rooms):
        return
    going = _Pass(lines, rooms, now=now, rules=rules)
    shares = Shares(total=total_capacity(rooms), in_use=in_use)
    for priority in sorted({line.sample.priority for line in lines}, reverse=True):
        yield from _level(going, [line for line in lines if line.sample.priority == priority], shares)


def _level(going: _Pass, lines: Sequence[Line], shares: Shares) -> Iterator[Placement]:
    """Give the jobs of one priority their turns: the user who holds least, then who came first."""
    heads: dict[str, list[_Head]] = {}
    for line in lines:
        entered = going.enter(line)
        if entered is not None:
            heads.setdefault(line.sample.user, []).append(_head(entered))
    for of_user in heads.values():
        heapq.heapify(of_user)
    turns = [(shares.of(user), *of_user[0][:2], user) for user, of_user in heads.items()]
    heapq.heapify(turns)
    while turns:
        user = turns[0][-1]
        of_user = heads[user]
        entered = of_user[0][-1]
        placed = going.decide(entered)
        if placed is not None:
            shares.charge(user, entered.line.sample.claim)
            yield placed
        if going.advance(entered):
            heapq.heapreplace(of_user, _head(entered))
        else:
            heapq.heappop(of_user)
        if of_user:
            heapq.heapreplace(turns, (shares.of(user), *of_user[0][:2], user))
        else:
            heapq.heappop(turns)


@dataclass(slots=True, kw_only=True, eq=False)
class _Entered:
    """Iteration state of one queue line within a pass."""

    line: Line
    #: Its row in the table, and a job that stands for it there.
    row: int
    job: QueuedJob
    rest: Iterator[Waiter]
    next: Waiter
    #: No cluster takes one of them any more; and no cluster keeps room for one any more.
    full: bool = False
    kept_nothing: bool = False


#: Heap key: (seq, id) of the next job. `id(entered)` only keeps the tuples comparable: (seq, id) is unique.
_Head = tuple[int, str, int, _Entered]


def _head(entered: _Entered) -> _Head:
    return entered.next.seq, entered.next.submission_id, id(entered), entered


class _Pass:
    """The clusters as they fill up."""

    def __init__(self, lines: Sequence[Line], rooms: Sequence[Room], *, now: float, rules: PlanRules) -> None:
        self._rooms = rooms
        self._now = now
        self._rules = rules
        self._columns = {room.name: column for column, room in enumerate(rooms)}
        self._opinions = Opinions(rooms, rules)
        self._rows: dict[object, int] = {}
        samples: list[QueuedJob] = []
        for line in lines:
            if _kind(line.sample) not in self._rows:
                self._rows[_kind(line.sample)] = len(samples)
                samples.append(heed_avoid(line.sample, rooms, rules))
        self._samples = samples
        self._table = _score_table()(samples, rooms, rules)
        self._patience_s = patience_s((room.view.snapshot for room in rooms), rules)

    def enter(self, line: Line) -> _Entered | None:
        """Return the state of a line at the start of a pass; None for an empty line."""
        row, rest = self._rows[_kind(line.sample)], line.in_turn()
        for first in rest:
            job = replace(self._samples[row], preferred_cluster=line.sample.preferred_cluster)
            return _Entered(line=line, row=row, job=job, rest=rest, next=first)
        return None

    def decide(self, entered: _Entered) -> Placement | None:
        """Place the next job of a line, or reserve room for it when it has waited too long."""
        starves = self._starves(entered.next.waiting_since)
        column = self._choose(entered)
        if column is not None:
            waits = not starves and self._waits_for_preferred(entered)
            return None if waits else self._place(entered, column)
        entered.full = True
        if starves and not entered.kept_nothing:
            self._keep_room(entered)
        return None

    def advance(self, entered: _Entered) -> bool:
        """Go on to the next one who need be asked; False when there is none."""
        if entered.full and (entered.kept_nothing or not self._starves(entered.line.oldest)):
            return False
        for waiter in entered.rest:
            if not entered.full or self._starves(waiter.waiting_since):
                entered.next = waiter
                return True
        return False

    def _starves(self, waiting_since: float) -> bool:
        return self._now - waiting_since > self._rules.starvation_after_s

    def _waits_for_preferred(self, entered: _Entered) -> bool:
        """Tell whether a job that could go elsewhere waits for the cluster that it prefers, and count it."""
        column = self._columns.get(entered.job.preferred_cluster or "")
        if column is None:
            return False
        room, refusal = self._rooms[column], self._refusal_of_preferred(entered)
        waits = is_worth_a_wait(room, refusal, now=self._now, patience_s=self._patience_s)
        room.waited_for += waits
        return waits

    def _refusal_of_preferred(self, entered: _Entered) -> Refusal | None:
        column = self._columns.get(entered.job.preferred_cluster or "")
        return None if column is None else objection(entered.job, self._rooms[column], self._rules)

    def _choose(self, entered: _Entered) -> int | None:
        column = self._columns.get(entered.job.preferred_cluster or "")
        if column is not None and self._table.allows(entered.row, column):
            return column
        return self._table.best(entered.row)

    def _place(self, entered: _Entered, column: int) -> Placement:
        room = self._rooms[column]
        scores, refusals, candidates = self._explained(entered, column)
        room.place(entered.job.claim)
        self._table.refresh(column)
        return Placement(
            submission_id=entered.next.submission_id,
            cluster=room.name,
            scores=scores,
            refusals=refusals,
            sentence=why(entered.job, room, candidates, refusals),
        )

    def _explained(
        self, entered: _Entered, column: int
    ) -> tuple[Mapping[str, Score], Mapping[str, Refusal], int]:
        """Return what spoke for and against: of all clusters, or of the chosen one where they are many."""
        if len(self._rooms) <= EXPLAINED_CLUSTERS:
            found = self._opinions.on(entered.line.sample)
            return found.scores, found.refusals, len(found.scores)
        room = self._rooms[column]
        refusal, preferred = self._refusal_of_preferred(entered), entered.job.preferred_cluster
        return (
            {room.name: score(entered.job, room, self._rules)},
            {preferred: refusal} if refusal and preferred else {},
            self._table.candidates(entered.row),
        )

    def _keep_room(self, entered: _Entered) -> None:
        for column in self._table.in_our_way(entered.row):
            room = self._rooms[column]
            refusal = objection(entered.job, room, self._rules)
            if room.kept_for is None and refusal is not None and refusal.cause in GOES_BY:
                waiter = entered.next
                room.keep_for(replace(entered.job, submission_id=waiter.submission_id, seq=waiter.seq))
                self._table.refresh(column)
                return
        entered.kept_nothing = True


def _kind(job: QueuedJob) -> object:
    """Return all that a cluster looks at."""
    return tuple(sorted(job.claim.items())), job.tags, job.avoid, job.unfit, job.env_key


def warm_up() -> None:
    """Import what the first pass needs: numpy takes as long as a first look, so do both at once."""
    _score_table()


def _score_table() -> type[ScoreTable]:
    from ray_multicluster_scheduler.policy.table import ScoreTable  # noqa: PLC0415 - see `warm_up`

    return ScoreTable
