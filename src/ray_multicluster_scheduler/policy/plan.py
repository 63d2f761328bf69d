"""Plan a whole queue over one frozen view of every cluster: the same input gives the same answer.

For each job in its turn: filter (feasible.py), score (score.py), take the best, and count it in the ledger,
so that the next job sees it. A job that finds no place learns why, for every cluster.

A job that has waited too long gets room kept for it on one cluster: where most of its claim is free already,
and only where our own jobs are in the way, because what others use may never come free. Jobs after it leave
that room alone; jobs before it need not. The choice is made anew in each pass and needs no memory: kept room
only grows until the job fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ray_multicluster_scheduler.model.decision import (
    Cause,
    ClusterView,
    Placement,
    Plan,
    QueuedJob,
    Refusal,
    Score,
    Waiting,
)
from ray_multicluster_scheduler.model.resources import Resources, plus, shortfall
from ray_multicluster_scheduler.policy.feasible import (
    GOES_BY,
    LASTING,
    PASSING,
    awaited,
    heed_avoid,
    is_worth_a_wait,
    objection,
    patience_s,
)
from ray_multicluster_scheduler.policy.ledger import Room, open_rooms, share_of, total_capacity
from ray_multicluster_scheduler.policy.order import FairOrder
from ray_multicluster_scheduler.policy.rules import PlanRules
from ray_multicluster_scheduler.policy.score import best, score

__all__ = ["PlanRules", "decisions", "plan"]


def plan(
    queue: Sequence[QueuedJob],
    views: Sequence[ClusterView],
    *,
    now: float,
    rules: PlanRules,
    in_use: Mapping[str, Resources],
) -> Plan:
    """Decide about every waiting job. `in_use` is what each user's live jobs hold over all clusters."""
    decided = tuple(decisions(queue, open_rooms(views), now=now, rules=rules, in_use=in_use))
    return Plan(
        placements=tuple(each for each in decided if isinstance(each, Placement)),
        waiting=tuple(each for each in decided if isinstance(each, Waiting)),
    )


def decisions(
    queue: Iterable[QueuedJob],
    rooms: Sequence[Room],
    *,
    now: float,
    rules: PlanRules,
    in_use: Mapping[str, Resources],
) -> Iterator[Placement | Waiting]:
    """Yield the decision about each job in its turn, with `rooms` as they are then; it is never revised."""
    by_name = {room.name: room for room in rooms}
    order = FairOrder(queue, total=total_capacity(rooms), in_use=in_use)
    opinions = Opinions(rooms, rules)
    unseen, lasts_s = awaited(rooms), patience_s((room.view.snapshot for room in rooms), rules)
    position = 0
    for job in order:
        found = opinions.on(job)
        starves = now - job.waiting_since > rules.starvation_after_s
        later = _after_first_look(unseen) if unseen else None
        if later is None and found.scores and not starves:
            later = _with_preferred(by_name.get(job.preferred_cluster or ""), found, now=now, lasts_s=lasts_s)
        cluster = None if later else _choose(job, found.scores)
        if cluster is not None:
            by_name[cluster].place(job.claim)
            order.charge(job)
            yield Placement(
                submission_id=job.submission_id,
                cluster=cluster,
                scores=found.scores,
                refusals=found.refusals,
                sentence=why(job, by_name[cluster], len(found.scores), found.refusals),
            )
            continue
        position += 1
        yield Waiting(
            submission_id=job.submission_id,
            refusals={**found.refusals, **dict.fromkeys(found.scores, later)} if later else found.refusals,
            position=position,
            reserved_on=_keep_room(job, found.refusals, rooms) if starves and not unseen else None,
        )


class Opinion:
    """What each cluster says to jobs of one shape. Its mappings are never changed: plans hold them."""

    def __init__(self, job: QueuedJob, rooms: Sequence[Room]) -> None:
        self._job = job
        self._versions = [-1] * len(rooms)
        #: What no placement changes is asked once.
        self._lasting: list[Refusal | None] = [None] * len(rooms)
        self._verdicts: list[Refusal | Score | None] = [None] * len(rooms)
        self.refusals: Mapping[str, Refusal] = {}
        self.scores: Mapping[str, Score] = {}

    def refresh(self, rooms: Sequence[Room], rules: PlanRules) -> None:
        """Ask again where something has changed."""
        changed = [i for i, room in enumerate(rooms) if room.version != self._versions[i]]
        if not changed:
            return
        for i in changed:
            room, job = rooms[i], self._job
            if self._versions[i] < 0:
                self._lasting[i] = objection(job, room, rules, LASTING)
            self._versions[i] = room.version
            self._verdicts[i] = (
                self._lasting[i] or objection(job, room, rules, PASSING) or score(job, room, rules)
            )
        said = [(room.name, verdict) for room, verdict in zip(rooms, self._verdicts, strict=True)]
        self.refusals = {name: verdict for name, verdict in said if isinstance(verdict, Refusal)}
        self.scores = {name: verdict for name, verdict in said if isinstance(verdict, Score)}


class Opinions:
    """Asks the clusters once per shape of job, and again only where something has changed."""

    def __init__(self, rooms: Sequence[Room], rules: PlanRules) -> None:
        self._rooms = rooms
        self._rules = rules
        self._tags = frozenset(tag for room in rooms for tag in room.view.spec.tags)
        self._tried = frozenset(key for room in rooms for key in (*room.view.warm, *room.view.failing))
        self._by_shape: dict[object, Opinion] = {}

    def on(self, job: QueuedJob) -> Opinion:
        """Return what the clusters say to this job now."""
        shape = self._shape(job)
        opinion = self._by_shape.get(shape)
        if opinion is None:
            opinion = Opinion(heed_avoid(job, self._rooms, self._rules), self._rooms)
            self._by_shape[shape] = opinion
        opinion.refresh(self._rooms, self._rules)
        return opinion

    def _shape(self, job: QueuedJob) -> object:
        """Return all that a cluster looks at; tags and environments that no cluster has do not count."""
        tags = frozenset(job.tags)
        env_key = job.env_key if job.env_key in self._tried else None
        environment = job.unfit, job.ray_needs, env_key
        return frozenset(job.claim.items()), len(tags), tags & self._tags, job.avoid, environment


def _choose(job: QueuedJob, scores: Mapping[str, Score]) -> str | None:
    """Take the preferred cluster if it may be taken, else the best."""
    if job.preferred_cluster in scores:
        return job.preferred_cluster
    return best(scores)


def _after_first_look(unseen: Sequence[str]) -> Refusal:
    """Say why a job waits although a cluster could take it: a new leader looks at all of them first."""
    rest = f" and {len(unseen) - 1} more are" if len(unseen) > 1 else " is"
    sentence = f"it could take the job, but {unseen[0]!r}{rest} looked at first: two seconds at most"
    return Refusal(cause=Cause.UNSEEN, sentence=sentence)


def _with_preferred(preferred: Room | None, found: Opinion, *, now: float, lasts_s: float) -> Refusal | None:
    """Say why a job waits although a cluster could take it: the one that it prefers is about to."""
    if preferred is None:
        return None
    if not is_worth_a_wait(preferred, found.refusals.get(preferred.name), now=now, patience_s=lasts_s):
        return None
    preferred.waited_for += 1
    sentence = f"it could take the job, but the preferred cluster {preferred.name!r} can in a moment"
    return Refusal(cause=Cause.PACED, sentence=sentence)


def _keep_room(job: QueuedJob, refusals: Mapping[str, Refusal], rooms: Sequence[Room]) -> str | None:
    """Keep room for a starving job on one cluster and name it; None when there is no such cluster."""
    candidates = [
        room
        for room in rooms
        if room.kept_for is None
        and refusals[room.name].cause in GOES_BY
        and not shortfall(job.claim, plus(room.free, room.ours))
    ]
    if not candidates:
        return None
    freest = min(candidates, key=lambda room: (-share_of(job.claim, room.free), room.name))
    freest.keep_for(job)
    return freest.name


def why(job: QueuedJob, room: Room, candidates: int, refusals: Mapping[str, Refusal]) -> str:
    """Say in one sentence why a job goes to a cluster."""
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
