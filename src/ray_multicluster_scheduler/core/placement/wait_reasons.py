"""Why jobs wait: for each reason how many, since when the oldest of them waits, and the reason in words.

Every cluster gives a job a reason. The job counts for the reason that will end first: if one cluster has no
room now and another is too small, it waits for room. So a reason that needs an operator (`TOO_LARGE`,
`ENVIRONMENT`, …) counts only jobs that will not start otherwise.

And what would let a job start now: each suggestion was tried, with it the planner places the job.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice

from ray_multicluster_scheduler.core.placement.capacity import Room, share_of
from ray_multicluster_scheduler.core.placement.checks import being_started, objection
from ray_multicluster_scheduler.core.placement.plan import Decided, PlanningPass, QueueCut, decide, decisions
from ray_multicluster_scheduler.core.placement.queue import (
    JobQueue,
    Line,
    line_key,
    line_name,
    queue_of,
    with_job,
)
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.decision import (
    DEPENDENCIES,
    GOES_BY_FIRST,
    NO_CLUSTER,
    RETRY_DELAY,
    TURN,
    Cause,
    ClusterView,
    Placement,
    QueuedJob,
    Wait,
    Waiting,
)
from ray_multicluster_scheduler.model.resources import GIB, TOLERANCE, Resources, plus, shortfall, show

#: The sentence about a job names this many clusters at most: it is for a row of a table.
MOST_NAMED = 3
#: So many jobs are named as the first of their lines, shared out among all lines; of each line one at least.
MOST_FRONT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Jobs that get equal decisions."""

    #: The first of them that waits.
    sample: QueuedJob
    jobs: int
    #: The `seq`s of the first of them, in order.
    front: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """All jobs in the queue: jobs that may start, jobs that wait for others, jobs that wait for a time."""

    kinds: Sequence[Kind]
    needing: Sequence[QueuedJob]
    later: Sequence[QueuedJob]
    newest_seq: int = 0


def in_numbers(queue: JobQueue, *, now: float, most_front: int = MOST_FRONT) -> Queue:
    """Return a whole queue by kinds of jobs, as it is now."""
    kinds, lines = [], queue.lines(now=now)  # first: whose time has come is no longer aside
    each = max(1, most_front // max(1, len(lines)))
    for line in lines:
        first = next(line.in_turn())
        # The sample of a line may have left it, and a tie goes by the age of the first job that waits.
        sample = replace(
            line.sample,
            seq=first.seq,
            submission_id=first.submission_id,
            waiting_since=first.waiting_since,
        )
        front = tuple(waiter.seq for waiter in islice(line.in_turn(), each))
        kinds.append(Kind(sample=sample, jobs=len(line.waiters), front=front))
    needing, later = queue.aside()
    return Queue(kinds=kinds, needing=needing, later=later, newest_seq=queue.newest_seq)


def waits(
    queue: Queue,
    views: Sequence[ClusterView],
    *,
    now: float,
    rules: PlanRules,
    in_use: Mapping[str, Resources],
) -> tuple[Wait, ...]:
    """Return every reason with waiting jobs, from a pass over one job of each kind."""
    asked = {kind.sample.submission_id: kind for kind in queue.kinds}
    found: dict[str, Wait] = {}
    lined: dict[str, dict[str, Kind]] = {}
    told: dict[str, str] = {}
    lines = queue_of(kind.sample for kind in queue.kinds).lines(now=now)
    for decided in decisions(lines, views, now=now, rules=rules, in_use=in_use):
        kind = asked[decided.submission_id]
        reason, sentence = why(decided)
        _count(found, reason, kind.jobs, kind.sample.waiting_since)
        name = line_name(kind.sample)
        told[name] = sentence
        lined.setdefault(reason, {})[name] = kind
    _count_all(found, DEPENDENCIES, queue.needing)
    _count_all(found, RETRY_DELAY, queue.later)
    return tuple(
        replace(
            wait,
            lines={name: told[name] for name in kinds},
            fronts={name: kind.front for name, kind in kinds.items()},
            beyond={name: rest for name, kind in kinds.items() if (rest := kind.jobs - len(kind.front))},
            newest_seq=queue.newest_seq,
        )
        for wait, kinds in ((wait, lined.get(reason, {})) for reason, wait in found.items())
    )


def why(decided: Placement | Waiting) -> tuple[str, str]:
    """Return the reason why a job waits, and the same in a sentence that names the nearest clusters."""
    if isinstance(decided, Placement):
        return TURN, f"{decided.cluster} has room and takes it next"
    told = {name: each for name, each in decided.refusals.items() if each.cause is not Cause.EXCLUDED}
    refusals = sorted((told or decided.refusals).items(), key=lambda item: GOES_BY_FIRST.index(item[1].cause))
    if not refusals:
        return NO_CLUSTER, "no cluster is configured"
    only = "its only cluster " if len(told) == 1 < len(decided.refusals) else ""
    named = "; ".join(f"{only}{name}: {refusal.sentence}" for name, refusal in refusals[:MOST_NAMED])
    others = len(refusals) - MOST_NAMED
    more = f"; {others} more cannot take it either" if others > 0 else ""
    return refusals[0][1].cause.value, named + more


def _count_all(found: dict[str, Wait], reason: str, jobs: Iterable[QueuedJob]) -> None:
    ages = [job.waiting_since for job in jobs]
    if ages:
        _count(found, reason, len(ages), min(ages))


def _count(found: dict[str, Wait], reason: str, jobs: int, oldest: float) -> None:
    known = found.get(reason, Wait(reason=reason, jobs=0, oldest=oldest))
    found[reason] = Wait(reason=reason, jobs=known.jobs + jobs, oldest=min(known.oldest, oldest))


#: Each try is a pass over the queue, so only the most likely clusters are tried.
_MOST_CLUSTERS = 5


class Remedy(str, Enum):
    """The kind of change that is suggested."""

    ASK_FOR_LESS = "ASK_FOR_LESS"
    RAISE_PRIORITY = "RAISE_PRIORITY"
    UNDRAIN = "UNDRAIN"
    RAISE_LIMIT = "RAISE_LIMIT"
    RECOVER = "RECOVER"
    WAIT = "WAIT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """One change after which the same pass would place the job."""

    remedy: Remedy
    #: For people: what to do, or what has to happen.
    sentence: str
    #: The changed job and, if the cluster changes, the changed cluster.
    job: QueuedJob
    view: ClusterView | None = None


def suggestions(
    job: QueuedJob,
    queue: Iterable[QueuedJob],
    views: Sequence[ClusterView],
    *,
    now: float,
    rules: PlanRules,
    in_use: Mapping[str, Resources],
) -> tuple[Suggestion, ...]:
    """Say what would let `job`, in this queue or added to it, start now; empty if it starts anyway."""
    others = (other for other in queue if other.submission_id != job.submission_id)
    lines = queue_of((*others, job)).lines(now=now)
    asked = Question(lines=lines, views=tuple(views), now=now, rules=rules, in_use=in_use)
    return asked.suggestions(job, asked.decide(job))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A pass of the planner that can be repeated with changed inputs."""

    lines: tuple[Line, ...]
    views: tuple[ClusterView, ...]
    now: float
    rules: PlanRules
    in_use: Mapping[str, Resources]
    #: How many jobs follow the last ones that were read of their lines: see `decide`.
    beyond: Mapping[str, int] = field(default_factory=dict)

    def decide(self, job: QueuedJob) -> Decided:
        """Return the decision about a job in these lines; raises `QueueCut`."""
        return decide(job, self._pass(self.lines, self.views), self.beyond)

    def suggestions(self, job: QueuedJob, decided: Decided) -> tuple[Suggestion, ...]:
        """Say what would let a job in these lines start now, if `decided` lets it wait."""
        waiting, rooms = decided.decision, decided.rooms
        if isinstance(waiting, Placement):
            return ()
        for room in rooms:
            if room.name == waiting.reserved_on:
                room.kept_for = None  # reserved for this job
        others = self._without(job)
        tries = [_ask_for_less(job, rooms, self.rules), _go_first(job, others)]
        nearest = sorted(rooms, key=lambda room: (-share_of(job.claim, room.free), room.name))
        for room in nearest[:_MOST_CLUSTERS]:
            cause = waiting.refusals[room.name].cause
            tries += [remedy(job, room, waiting.position - 1) for remedy in _REMEDIES.get(cause, ())]
        mildest = (next((one for one in ways if self._works(one, others)), None) for ways in tries)
        return tuple(suggestion for suggestion in mildest if suggestion)

    def _works(self, suggestion: Suggestion, others: Sequence[Line]) -> bool:
        """Tell whether the job is placed if the suggestion is followed; False: no, or it cannot be told."""
        changed, job = suggestion.view, suggestion.job
        views = [changed if changed and changed.spec.name == view.spec.name else view for view in self.views]
        one_pass = self._pass(with_job(others, job), views)
        if not self.beyond:  # lines are left as soon as they are full: the placements are the same
            return any(each.submission_id == job.submission_id for each in one_pass.turns(everyone=False))
        try:
            return isinstance(decide(job, one_pass, self.beyond).decision, Placement)
        except QueueCut:
            return False

    def _without(self, job: QueuedJob) -> tuple[Line, ...]:
        """Return the lines without a job; those that it is not in are the same."""
        key = line_key(job)
        rest = []
        for line in self.lines:
            if line_key(line.sample) == key:
                waiters = {name: each for name, each in line.waiters.items() if name != job.submission_id}
                line = replace(line, waiters=waiters)  # noqa: PLW2901 - the one line that changes
            if line.waiters:
                rest.append(line)
        return tuple(rest)

    def _pass(self, lines: Sequence[Line], views: Sequence[ClusterView]) -> PlanningPass:
        return PlanningPass(lines, views, now=self.now, rules=self.rules, in_use=self.in_use)


def _ask_for_less(job: QueuedJob, rooms: Sequence[Room], rules: PlanRules) -> list[Suggestion]:
    """Suggest the largest part of the claim that is free on some cluster."""
    smaller = [(replace(job, claim=_part_that_fits(job, room)), room) for room in rooms]
    fitting = [
        (less, room)
        for less, room in smaller
        if all(less.claim.values()) and objection(less, room, rules) is None
    ]
    fitting.sort(key=lambda each: (-share_of(job.claim, each[0].claim), each[1].name))
    return [
        Suggestion(
            remedy=Remedy.ASK_FOR_LESS,
            sentence=f"ask for {show(less.claim)} instead of {show(job.claim)}: {room.name!r} has that free",
            job=less,
        )
        for less, room in fitting[:1]
    ]


def _part_that_fits(job: QueuedJob, room: Room) -> dict[str, float]:
    free = room.free_for_others()
    short = shortfall(job.claim, free)
    return {
        name: _round_down(name, free.get(name, 0.0)) if name in short else amount
        for name, amount in job.claim.items()
    }


def _round_down(resource: str, amount: float) -> float:
    """Round an amount for people: to a whole number from 1 on, else and for bytes to two decimals."""
    unit = GIB if resource.endswith("memory") else 1
    step = 1.0 if unit == 1 and amount >= 1 else unit / 100
    return max(0.0, math.floor(amount / step + TOLERANCE) * step)


def _go_first(job: QueuedJob, others: Sequence[Line]) -> list[Suggestion]:
    highest = max((line.sample.priority for line in others if line.waiters), default=job.priority - 1)
    if highest < job.priority:
        return []
    sentence = f"give it priority {highest + 1}, so that it goes before all others that wait"
    first = replace(job, priority=highest + 1)
    return [Suggestion(remedy=Remedy.RAISE_PRIORITY, sentence=sentence, job=first)]


def _undrain(job: QueuedJob, room: Room, _ahead: int) -> list[Suggestion]:
    view = replace(room.view, drained=False)
    sentence = f"let {room.name!r} take jobs again: `raymc undrain {room.name}`"
    return [Suggestion(remedy=Remedy.UNDRAIN, sentence=sentence, job=job, view=view)]


def _recover(job: QueuedJob, room: Room, _ahead: int) -> list[Suggestion]:
    view = replace(room.view, snapshot=replace(room.view.snapshot, health=Health.HEALTHY, problem=None))
    sentence = f"bring {room.name!r} back: `raymc doctor` says what is wrong with it"
    return [Suggestion(remedy=Remedy.RECOVER, sentence=sentence, job=job, view=view)]


def _raise_limit(job: QueuedJob, room: Room, ahead: int) -> list[Suggestion]:
    limit, configured = room.driver_limit, room.view.spec.max_running_jobs is not None
    verb, now = ("raise", f"from {limit} ") if configured else ("set", "")
    return [
        Suggestion(
            remedy=Remedy.RAISE_LIMIT,
            sentence=f"{verb} max_running_jobs of {room.name!r} {now}to {limit + more}",
            job=job,
            view=replace(room.view, spec=replace(room.view.spec, max_running_jobs=limit + more)),
        )
        for more in _enough(1 - room.slots, ahead)
    ]


def _wait_for_jobs(job: QueuedJob, room: Room, ahead: int) -> list[Suggestion]:
    live = room.drivers
    return [
        Suggestion(
            remedy=Remedy.WAIT,
            sentence=f"wait for {ended} of the {live} jobs on {room.name!r} to end",
            job=job,
            view=replace(room.view, live_jobs=room.view.live_jobs - ended),
        )
        for ended in _enough(1 - room.slots, ahead)
        if ended <= live
    ]


def _wait_for_pace(job: QueuedJob, room: Room, _ahead: int) -> list[Suggestion]:
    view = replace(room.view, allowance=None)
    sentence = f"wait until {room.name!r} is given jobs again: {being_started(room)}"
    return [Suggestion(remedy=Remedy.WAIT, sentence=sentence, job=job, view=view)]


def _wait_for_room(job: QueuedJob, room: Room, _ahead: int) -> list[Suggestion]:
    """Suggest that the missing amounts become free or, if jobs ahead would take them, all that is in use."""
    missing = shortfall(job.claim, room.free)
    ours = f"our jobs there: {room.view.live_jobs}"
    return [
        Suggestion(remedy=Remedy.WAIT, sentence=sentence, job=job, view=view)
        for sentence, view in (
            (
                f"wait until {show(missing)} more are free on {room.name!r}; {ours}",
                _freed(room.view, missing),
            ),
            (
                f"wait until all that runs on {room.name!r} has ended; {ours}",
                _freed(room.view, room.capacity),
            ),
        )
    ]


def _freed(view: ClusterView, amounts: Resources) -> ClusterView:
    """Return the cluster after these amounts of its used resources were released."""

    def less(held: Resources) -> dict[str, float]:
        return {name: max(0.0, amount - amounts.get(name, 0.0)) for name, amount in held.items()}

    used = less(plus(view.snapshot.used or {}, view.unseen))
    others = less(view.snapshot.claimed_by_others)
    snapshot = replace(view.snapshot, used=used, claimed_by_others=others)
    return replace(view, reserved=less(view.reserved), unseen={}, snapshot=snapshot)


def _enough(alone: int, ahead: int) -> list[int]:
    """Return the number of places needed if the jobs ahead leave one, and if they do not."""
    return sorted({alone, alone + ahead})


#: Possible remedies for each cause of refusal; the first that works is suggested.
_REMEDIES: Mapping[Cause, tuple[Callable[[QueuedJob, Room, int], list[Suggestion]], ...]] = {
    Cause.DRAINED: (_undrain,),
    Cause.UNHEALTHY: (_recover,),
    Cause.PACED: (_wait_for_pace,),
    Cause.DRIVER_CAP: (_raise_limit, _wait_for_jobs),
    Cause.NO_ROOM: (_wait_for_room,),
}
