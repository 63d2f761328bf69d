"""The refusal or score of each cluster for a kind of job, computed again after the cluster changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ray_multicluster_scheduler.core.placement.capacity import Room
from ray_multicluster_scheduler.core.placement.checks import lasting_checks, objection, passing_checks
from ray_multicluster_scheduler.core.placement.plan_rules import PlanRules
from ray_multicluster_scheduler.core.placement.scoring import score
from ray_multicluster_scheduler.model.decision import QueuedJob, Refusal, Score


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
