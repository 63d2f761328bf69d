"""Moves on their way to the store, and the jobs that are busy because of an instruction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ray_multicluster_scheduler.core.instructions import WriteMoves
from ray_multicluster_scheduler.core.live_jobs import LiveJobs
from ray_multicluster_scheduler.environment.redact import redact_text, secrets_of
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.model.job import Job, Transition
from ray_multicluster_scheduler.model.states import JobState


class PendingMoves:
    """Makes the instruction to write moves, without any secret in their reasons."""

    def __init__(self, live: LiveJobs, specs: Sequence[ClusterSpec]) -> None:
        self._live = live
        #: Of the clusters' own environments: Ray quotes what it was sent when it cannot set it up.
        self._cluster_secrets = {spec.name: secrets_of(spec.runtime_env) for spec in specs}
        #: Jobs with an instruction under way: nothing else is decided about them before its result is known.
        self.busy: set[str] = set()

    def write(
        self,
        moves: Sequence[Transition],
        *,
        occasion: str,
        log: str | None = None,
        known: Mapping[str, Job] = MappingProxyType({}),
    ) -> WriteMoves:
        """Return the instruction to write these moves. `known`: jobs of the queue as they were just read."""
        ids = {move.submission_id for move in moves}
        self.busy |= ids
        jobs = {each: job for each in ids if (job := self._live.get(each) or known.get(each)) is not None}
        clean = [self._clean(move, jobs.get(move.submission_id)) for move in moves]
        return WriteMoves(moves=clean, known=jobs, log=log, occasion=occasion)

    def without_secrets(self, text: str, job: Job) -> str:
        """Return a text without what is secret in the environment that a job was sent with."""
        of_cluster = self._cluster_secrets.get(job.cluster or "", ())
        return redact_text(text, (*secrets_of(job.spec.runtime_env), *of_cluster))

    def _clean(self, move: Transition, job: Job | None) -> Transition:
        """Take the secrets out of a reason, which may be in the words of a cluster."""
        if job is None or move.new is JobState.PLACED:  # the planner's own words
            return move
        attempt = dict(move.attempt_changes)
        if "reason" in attempt:
            attempt["reason"] = self.without_secrets(attempt["reason"], job)
        return replace(move, reason=self.without_secrets(move.reason, job), attempt_changes=attempt)
