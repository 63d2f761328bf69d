"""The plan as a plain loop: it asks every cluster about every job, and remembers nothing.

It says what is right, in the simplest words there are. Tests hold the planner to it, and `plan.py` here
measures how much the planner saves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ray_multicluster_scheduler.core.placement.capacity import Room, open_rooms, total_capacity
from ray_multicluster_scheduler.core.placement.checks import lasting_checks, objection, with_last_resorts
from ray_multicluster_scheduler.core.placement.plan import (
    awaited,
    expected_rooms,
    is_worth_a_wait,
    patience_s,
    reserve,
)
from ray_multicluster_scheduler.core.placement.queue import Shares, line_key
from ray_multicluster_scheduler.core.placement.scoring import best, score
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.decision import ClusterView, QueuedJob
from ray_multicluster_scheduler.model.resources import TOLERANCE, Resources

#: A job and its cluster; None: it waits.
Choice = tuple[str, str | None]


def naive_plan(
    queue: Sequence[QueuedJob],
    views: Sequence[ClusterView],
    *,
    now: float,
    rules: PlanRules,
    in_use: Mapping[str, Resources],
) -> list[Choice]:
    """Return the choice for each job, in the order of their turns."""
    return _Loop(queue, views, now=now, rules=rules, in_use=in_use).run()


class _Loop:
    def __init__(
        self,
        queue: Sequence[QueuedJob],
        views: Sequence[ClusterView],
        *,
        now: float,
        rules: PlanRules,
        in_use: Mapping[str, Resources],
    ) -> None:
        claims = [dict(job.claim) for job in queue] + [dict(h.claim) for v in views for h in v.holdings]
        self._rules = replace(rules, best_fit=any(claim != claims[0] for claim in claims))
        self._rooms = open_rooms(views)
        self._by_name = {room.name: room for room in self._rooms}
        self._now = now
        self._left = sorted(queue, key=lambda job: (-job.priority, job.seq, job.submission_id))
        self._all = tuple(queue)
        self._shares = Shares(total=total_capacity(self._rooms), in_use=in_use)
        self._patience_s = patience_s((view.snapshot for view in views), rules)
        self._chosen: list[Choice] = []
        self._reserved = False

    def run(self) -> list[Choice]:
        for priority in sorted({job.priority for job in self._left}, reverse=True):
            level = [job for job in self._left if job.priority == priority]
            if not self._reserved and not awaited(self._rooms):
                self._oldest_first(level)
            while level:
                job = min(level, key=lambda j: (self._shares.of(j.user), j.seq, j.submission_id))
                level.remove(job)
                cluster = None if awaited(self._rooms) else self._choose(job)
                if cluster is not None and self._waits_for_preferred(job):
                    cluster = None
                self._note(job, cluster)
        return self._chosen

    def _oldest_first(self, level: list[QueuedJob]) -> None:
        """Place who has waited too long, in the order of age, and reserve room for the first who cannot be.

        A job goes after the older ones of its line. A line of which one can be placed nowhere is passed over.
        """
        passed: set[object] = set()
        while True:
            lines: dict[object, QueuedJob] = {}
            for job in sorted(level, key=lambda j: (j.seq, j.submission_id)):
                lines.setdefault(line_key(job), job)
            heads = [job for key, job in lines.items() if key not in passed and self._is_too_old(job)]
            if not heads:
                return
            job = min(heads, key=lambda j: (j.waiting_since, j.seq, j.submission_id))
            if not any(_is_less(other.claim, job.claim) for other in self._all):
                passed.add(line_key(job))
                continue
            cluster = self._choose(job)
            if cluster is not None:
                level.remove(job)
                self._note(job, cluster)
            elif self._reserve(with_last_resorts(job, self._rooms, self._rules)):
                return
            else:
                passed.add(line_key(job))

    def _reserve(self, job: QueuedJob) -> bool:
        able = [room for room in self._rooms if not objection(job, room, self._rules, lasting_checks())]
        expected = expected_rooms(job, able, now=self._now, rules=self._rules)
        if expected:
            self._reserved = reserve(job, expected, now=self._now, rules=self._rules) is not None
        return bool(expected)

    def _is_too_old(self, job: QueuedJob) -> bool:
        return self._now - job.waiting_since > self._rules.starvation_after_s

    def _choose(self, job: QueuedJob) -> str | None:
        job = with_last_resorts(job, self._rooms, self._rules)
        able = [room for room in self._rooms if objection(job, room, self._rules) is None]
        scores = {room.name: score(job, room, self._rules) for room in able}
        return job.preferred_cluster if job.preferred_cluster in scores else best(scores)

    def _waits_for_preferred(self, job: QueuedJob) -> bool:
        room: Room | None = self._by_name.get(job.preferred_cluster or "")
        if room is None or self._is_too_old(job):
            return False
        refusal = objection(with_last_resorts(job, self._rooms, self._rules), room, self._rules)
        waits = is_worth_a_wait(room, refusal, now=self._now, patience_s=self._patience_s)
        room.waited_for += waits
        return waits

    def _note(self, job: QueuedJob, cluster: str | None) -> None:
        if cluster is not None:
            self._by_name[cluster].place(job)
            self._shares.charge(job.user, job.claim)
        self._chosen.append((job.submission_id, cluster))


def _is_less(claim: Resources, than: Resources) -> bool:
    """Tell whether a claim asks for no more of anything, and for less of something."""
    names = {*claim, *than}
    pairs = [(claim.get(name, 0.0), than.get(name, 0.0)) for name in names]
    return all(a <= b + TOLERANCE for a, b in pairs) and any(a < b - TOLERANCE for a, b in pairs)
