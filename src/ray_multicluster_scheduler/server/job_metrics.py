"""Counters of job events. They are read from the store, whichever process schedules the jobs."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram

from ray_multicluster_scheduler.model.past_move import PastMove
from ray_multicluster_scheduler.model.states import FINAL, JobState

#: From a few milliseconds, which a free cluster takes, to a day in the queue.
_STEPS_S = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)
_RUNS_S = (1, 10, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 7 * 24 * 3600)

#: Which step a job has made when it has left the first of these states for the second.
STEPS = {
    (JobState.QUEUED, JobState.PLACED): "place",
    (JobState.PLACED, JobState.SUBMITTED): "send",
    (JobState.SUBMITTED, JobState.RUNNING): "start",
}
#: From its acceptance until its first attempt runs.
WHOLE_WAY = "accept_to_run"


class JobMetrics:
    """Counters and histograms that are fed with moves."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._accepted = Counter("raymc_jobs_accepted", "Jobs that were accepted.", registry=registry)
        self._ended = Counter(
            "raymc_jobs_ended", "Jobs that have ended, by how.", ["state"], registry=registry
        )
        self._placements = Counter(
            "raymc_placements", "Attempts that were given to a cluster.", ["cluster"], registry=registry
        )
        self._attempts = Counter(
            "raymc_attempts_ended",
            "Attempts that have ended on a cluster, by how.",
            ["cluster", "outcome"],
            registry=registry,
        )
        self._steps = Histogram(
            "raymc_dispatch_seconds",
            "How long jobs take for each step: place (in the queue), send (to the cluster), start (of the "
            "driver), and accept_to_run (all of it, first attempts only).",
            ["step"],
            buckets=_STEPS_S,
            registry=registry,
        )
        self._runs = Histogram(
            "raymc_run_seconds",
            "How long the last attempts of jobs ran, by how they ended.",
            ["state"],
            buckets=_RUNS_S,
            registry=registry,
        )

    def count(self, moves: Sequence[PastMove]) -> None:
        """Take in what has happened."""
        for move in moves:
            self._count(move)

    def _count(self, move: PastMove) -> None:
        if move.old is None:
            self._accepted.inc()
            return
        begins = move.new is JobState.RUNNING and move.old in _STARTS
        # A program has begun and ended when its cluster says so, however late that was noticed.
        at = move.started_at if begins and move.started_at is not None else move.at
        lasted_s = 0.0 if move.since is None else max(0.0, at - move.since)
        if move.new is JobState.PLACED:
            self._placements.labels(move.cluster).inc()
        if step := STEPS.get((move.old, move.new)):
            self._steps.labels(step).observe(lasted_s)
        if begins and move.attempt == 1:
            self._steps.labels(WHOLE_WAY).observe(max(0.0, at - move.accepted_at))
        if move.outcome is not None:
            self._attempts.labels(move.cluster, move.outcome).inc()
        if move.new in FINAL:
            self._ended.labels(move.new.value).inc()
            if move.started_at is not None and move.ended_at is not None:
                self._runs.labels(move.new.value).observe(max(0.0, move.ended_at - move.started_at))


_STARTS = frozenset({JobState.PLACED, JobState.SUBMITTED})
