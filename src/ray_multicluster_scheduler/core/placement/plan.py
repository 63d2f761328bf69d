"""The planner: one deterministic pass over the whole queue, with one frozen view of every cluster.

For each job in its turn: filter (checks.py), score (scoring.py), take the best cluster, and count the job's
claim there for the jobs after it. Jobs of one kind get the same decision, so the cost of a pass depends on
the number of kinds: a line of jobs is left as soon as one of them cannot be placed, because within a pass
clusters only fill up. To explain a job deep in the queue, the same pass continues through all jobs
(`everyone`).

The order of turns: higher priority first; within a priority first the starved jobs (below), then the
user with the smallest share, then the oldest job.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from ray_multicluster_scheduler.core.pacing import slow_from_s
from ray_multicluster_scheduler.core.placement.capacity import Room, open_rooms, total_capacity
from ray_multicluster_scheduler.core.placement.checks import (
    GOES_BY,
    lasting_checks,
    objection,
    passing_checks,
    with_last_resorts,
)
from ray_multicluster_scheduler.core.placement.queue import Line, Shares, Turns, Waiter
from ray_multicluster_scheduler.core.placement.scoring import claims_differ, score
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot
from ray_multicluster_scheduler.model.decision import (
    Cause,
    ClusterView,
    Holding,
    Placement,
    Plan,
    QueuedJob,
    Refusal,
    Score,
    Waiting,
)
from ray_multicluster_scheduler.model.resources import Resources, plus, shortfall

if TYPE_CHECKING:
    from ray_multicluster_scheduler.core.placement.matrix import Matrix


# Reservations for starved jobs: on which cluster, from when, and which part other jobs may use.
#
# Small jobs can overtake a large one for ever, because enough room for it is never free at once. So the
# oldest job that has waited longer than `starvation_after_s` goes before the turns of all users. If no
# cluster has room for it, one cluster keeps the resources that become free.
#
# The end of a job is unknown, so a live job is expected to run as long again as it has run. Room is kept
# where it is expected first, and only if that is within a part (`reserve_within`) of the time the job has
# waited: idle resources delay other jobs. The others may use the resources that will be left when the job
# starts.
#
# The choice is made again in each pass, without stored state. To make it stable, a job that has overtaken
# this one is expected to run twice (`OVERTAKER_RUNS`) as long as this one is overdue. The cluster that
# keeps room gets no such job and stays the best choice. Among clusters that are full of such jobs the name
# decides.

#: Jobs that have overtaken a starved job are expected to run for this factor times its overdue time.
OVERTAKER_RUNS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRoom:
    """When a job is expected to fit on a cluster."""

    room: Room
    after_s: float
    #: The run time so far of the oldest job that must end first.
    oldest_s: float
    #: The resources that become free until then.
    coming: Resources


def has_waited_too_long(waiting_since: float, *, now: float, rules: PlanRules) -> bool:
    """Tell whether a job is starved, so that it goes before the turns of all users."""
    return now - waiting_since > rules.starvation_after_s


def expected_rooms(
    job: QueuedJob, rooms: Iterable[Room], *, now: float, rules: PlanRules
) -> tuple[ExpectedRoom, ...]:
    """Return the clusters on which a job will fit after some of our own jobs have ended.

    Resources that other programs use may never become free.
    """
    passing = passing_checks()
    expected = []
    for room in rooms:
        refusal = objection(job, room, rules, passing)
        in_our_way = refusal is not None and refusal.cause in GOES_BY
        if in_our_way and not shortfall(job.claim, plus(room.free, room.ours)):
            expected.append(_expected(job, room, now=now, rules=rules))
    return tuple(expected)


def reserve(job: QueuedJob, expected: Sequence[ExpectedRoom], *, now: float, rules: PlanRules) -> Room | None:
    """Keep room for a job on one of these clusters and return it; None if that would be too early."""
    chosen = min(expected, key=lambda each: (each.after_s, each.room.name))
    if chosen.oldest_s > rules.reserve_within * (now - job.waiting_since):
        return None
    chosen.room.keep_for(job, coming=chosen.coming)
    return chosen.room


def _expected(job: QueuedJob, room: Room, *, now: float, rules: PlanRules) -> ExpectedRoom:
    """Assume that the live jobs of a cluster end one after the other, until a job fits."""
    overdue_since = job.waiting_since + rules.starvation_after_s

    def left_s(holding: Holding) -> float:
        overtook = holding.since > overdue_since
        return max(now - holding.since, OVERTAKER_RUNS * (now - overdue_since) if overtook else 0.0)

    new = [Holding(given, now) for given in room.given]
    coming: Resources = {}
    after_s, oldest_s = 0.0, 0.0
    slots = room.slots if job.needs_driver_slot else 1
    for holding in sorted([*new, *room.view.holdings], key=left_s):
        if slots > 0 and not shortfall(job.claim, plus(room.free, coming)):
            break
        coming, slots = plus(coming, holding.claim), slots + 1
        after_s, oldest_s = left_s(holding), max(oldest_s, now - holding.since)
    if slots <= 0 or shortfall(job.claim, plus(room.free, coming)):
        after_s = oldest_s = math.inf
    return ExpectedRoom(room=room, after_s=after_s, oldest_s=oldest_s, coming=coming)


# The refusal or score of each cluster for a kind of job, computed again after the cluster changes.


class Opinion:
    """Refusals and scores of all clusters for one kind of job. Plans hold the mappings: never modify them."""

    def __init__(self, job: QueuedJob, rooms: Sequence[Room], rules: PlanRules) -> None:
        self._job = job
        self._rooms = rooms
        self._rules = rules
        self._versions = [-1] * len(rooms)
        lasting, self._passing = lasting_checks(), passing_checks()
        #: Results that no placement changes; computed once.
        self._lasting = [objection(job, room, rules, lasting) for room in rooms]
        self._answers: list[Refusal | Score | None] = [None] * len(rooms)
        self.refusals: Mapping[str, Refusal] = {}
        self.scores: Mapping[str, Score] = {}

    def refresh(self) -> Opinion:
        """Compute again for the clusters that have changed."""
        changed = [
            number for number, room in enumerate(self._rooms) if room.version != self._versions[number]
        ]
        for number in changed:
            self._versions[number] = self._rooms[number].version
            self._answers[number] = self._answer(number)
        if changed:
            answers = [(room.name, said) for room, said in zip(self._rooms, self._answers, strict=True)]
            self.refusals = {name: said for name, said in answers if isinstance(said, Refusal)}
            self.scores = {name: said for name, said in answers if isinstance(said, Score)}
        return self

    def _answer(self, number: int) -> Refusal | Score:
        job, room, rules = self._job, self._rooms[number], self._rules
        refusal = self._lasting[number] or objection(job, room, rules, self._passing)
        return refusal or score(job, room, rules)


def why(job: QueuedJob, room: Room, candidates: int, refusals: Mapping[str, Refusal]) -> str:
    """Say in one sentence why a job was placed on a cluster."""
    if room.name == job.only_cluster:
        return "it is the job's only cluster"
    if room.name == job.preferred_cluster:
        return "it is the preferred cluster"
    reason = f"best score of {candidates} candidates" if candidates > 1 else "only candidate"
    if candidates > 1 and room.view.spec.prefer:
        reason = f"first of {candidates} candidates, because of prefer: true"
    if job.preferred_cluster is None:
        return reason
    refusal = refusals.get(job.preferred_cluster)
    problem = f"cannot take it ({refusal.sentence})" if refusal else "is not configured"
    return f"{reason}; the preferred cluster {job.preferred_cluster!r} {problem}"


# Jobs that wait although a cluster could take them: before the first probe, or for a preferred cluster.


def awaited(rooms: Iterable[Room]) -> tuple[str, ...]:
    """Return the clusters whose first probe must end before anything is placed."""
    return tuple(room.name for room in rooms if room.view.snapshot.awaited)


def after_first_look(unseen: Sequence[str]) -> Refusal:
    """Say why a job waits although a cluster could take it: a new leader probes all clusters first."""
    rest = f" and {len(unseen) - 1} more are" if len(unseen) > 1 else " is"
    sentence = f"it could take the job, but {unseen[0]!r}{rest} looked at first: two seconds at most"
    return Refusal(cause=Cause.UNSEEN, sentence=sentence)


def with_preferred(preferred: str) -> Refusal:
    """Say why a job waits although a cluster could take it: its preferred cluster is about to have room."""
    sentence = f"it could take the job, but the preferred cluster {preferred!r} can in a moment"
    return Refusal(cause=Cause.PACED, sentence=sentence)


def patience_s(snapshots: Iterable[ClusterSnapshot], rules: PlanRules) -> float:
    """Return the usual duration of a start on the fastest cluster."""
    starts = (rules.first_start_s if seen.start_s is None else seen.start_s for seen in snapshots)
    return slow_from_s(min(starts, default=0.0))


def is_worth_a_wait(room: Room, refusal: Refusal | None, *, now: float, patience_s: float) -> bool:
    """Tell whether a job should wait for its preferred cluster after this refusal.

    Only if the pace of starts is the one reason, and no longer than a start takes elsewhere. At most as many
    jobs wait as the cluster can start at once, and none if even its latest start is overdue.
    """
    if refusal is None or refusal.cause is not Cause.PACED:
        return False
    latest = now if room.placed else room.view.last_start_at
    on_time = latest is not None and 0 <= now - latest <= patience_s
    return on_time and room.waited_for < room.view.starting + (room.view.allowance or 0)


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
        #: The priority of the jobs whose turn it is.
        self.level = 0

    def turns(self, *, everyone: bool) -> Iterator[Placement | Turn]:
        """Yield each placement in order; with `everyone` also each waiting job."""
        if not everyone and (self._unseen or not self.rooms):
            return
        for priority, level in sorted(self._levels.items(), reverse=True):
            self.level = priority
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

    def share(self, user: str) -> float:
        """Return the share of a user after the turns so far."""
        return self._shares.of(user)

    def users(self, priority: int) -> set[str]:
        """Return the users with jobs of a priority."""
        return {line.sample.user for line, _ in self._levels.get(priority, ())}

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
        room.place(entry.job)
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


class QueueCut(Exception):
    """The decision depends on jobs that were not read: more of a line than was read could be placed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The decision about one job, with the state of the pass in its turn."""

    decision: Placement | Waiting
    #: The clusters as they were in its turn.
    rooms: tuple[Room, ...]
    #: The users who had the same share as its own, that one included: their jobs take turns by age.
    peers: frozenset[str]
    #: Of the jobs that were not read, how many of other users or priorities wait before it.
    beyond: int


def decide(
    job: QueuedJob, one_pass: PlanningPass, beyond: Mapping[str, int] = MappingProxyType({})
) -> Decided:
    """Return the decision about one job of a pass.

    A line may have been cut: `beyond` says how many jobs follow the last one that was read, which it names.
    If that one has to wait because its line is full, all that follow it wait as well, so they change no
    decision, but for positions. Raises `QueueCut` where they might change one.
    """
    told: list[tuple[QueuedJob, int]] = []
    for each in one_pass.turns(everyone=True):
        if each.submission_id == job.submission_id:
            break
        if isinstance(each, Placement):
            if each.submission_id in beyond or any(cut.priority == one_pass.level for cut, _ in told):
                raise QueueCut
        elif each.submission_id in beyond:
            if not each.entry.full and each.later is not None and each.later.cause is not Cause.UNSEEN:
                raise QueueCut
            told.append((each.entry.line.sample, beyond[each.submission_id]))
    else:
        raise KeyError(job.submission_id)
    share = one_pass.share(job.user)
    peers = frozenset(user for user in one_pass.users(job.priority) if one_pass.share(user) == share)
    return Decided(
        decision=each if isinstance(each, Placement) else one_pass.waiting(each),
        rooms=one_pass.rooms,
        peers=peers,
        beyond=sum(more for cut, more in told if cut.priority != job.priority or cut.user not in peers),
    )


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
