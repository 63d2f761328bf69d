"""Places what waits: one pass over the queue and all clusters at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from ray_multicluster_scheduler.core.events import JobsAccepted, JobsRead
from ray_multicluster_scheduler.core.instructions import Instruction, ReadJobs
from ray_multicluster_scheduler.core.known_clusters import KnownClusters
from ray_multicluster_scheduler.core.lifecycle.attempt_request import compose_submit
from ray_multicluster_scheduler.core.lifecycle.transitions import ended_in_queue, placed
from ray_multicluster_scheduler.core.live_jobs import STARTING, LiveJobs, PendingMoves
from ray_multicluster_scheduler.core.placement.inputs import QueuedJobs
from ray_multicluster_scheduler.core.placement.plan import patience_s, placements
from ray_multicluster_scheduler.core.placement.queue import JobQueue, Line, line_name, unworkable_lines
from ray_multicluster_scheduler.core.placement.wait_reasons import Queue, in_numbers, waits
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.decision import ClusterView, Placement
from ray_multicluster_scheduler.model.execution import StartRequest
from ray_multicluster_scheduler.model.job import Job, Transition
from ray_multicluster_scheduler.model.states import JobState

#: Jobs of one kind that are ended in one transaction; the rest is ended in the next pass.
MOST_ENDED = 1_000
#: Why a job waits whose time was over before the first look at all clusters: a new leader ends it at once.
NOT_LOOKED = "no scheduler had looked at the clusters yet"
#: What the moves of a pass are written for.
PLACE = "place"
UNWORKABLE = "unworkable"


class Placer:
    """The queue, and the passes over it. Of a waiting job only what decides on its place is kept."""

    def __init__(
        self,
        clusters: KnownClusters,
        live: LiveJobs,
        pending: PendingMoves,
        rules: PlanRules,
        *,
        origin: str,
    ) -> None:
        self._clusters = clusters
        self._specs = tuple(clusters.specs.values())
        self._live = live
        self._pending = pending
        self._rules = rules
        self._origin = origin
        self._queue = JobQueue()
        self._queued = QueuedJobs(self._specs, rules.executors)
        #: Something has changed since the last pass.
        self.is_due = False
        #: Parts of the last pass that are not written yet: the next pass waits for them.
        self._unwritten = 0
        #: When jobs stop waiting for their preferred cluster.
        self._patience_ends_at: float | None = None
        #: What is to be sent for the jobs that were placed, by submission id.
        self._requests: dict[str, StartRequest] = {}

    # -- the queue

    def accepted(self, event: JobsAccepted) -> None:
        """Take new jobs into the queue."""
        for job, needs in event.jobs:
            self._put(job, needs)
        self.is_due = True

    def moved(self, job: Job) -> None:
        """Take note of a move that was written. A job that is on its way leaves no room for another."""
        self.is_due = self.is_due or job.state not in STARTING
        if job.state is JobState.QUEUED:
            self._put(job, ())
            return
        self._queue.remove([job.submission_id])
        if job.state is JobState.SUCCEEDED:
            self._queue.succeeded(job.submission_id)

    def is_needed(self, job: Job) -> bool:
        """Tell whether a job in the queue waits for this one."""
        return self._queue.is_needed(job.submission_id)

    def passed_deadline(self, *, now: float) -> bool:
        """Tell whether some job may have waited in the queue for too long."""
        return self._queue.passed_deadline(now=now)

    def wake_at(self) -> float | None:
        """Return when time alone changes what can be placed; None: never."""
        due = (self._queue.next_change_at(), self._patience_ends_at)
        return min((at for at in due if at is not None), default=None)

    def in_numbers(self, *, now: float) -> Queue:
        """Return the whole queue by kinds of jobs, as it is now."""
        return in_numbers(self._queue, now=now)

    def why_waiting(self, jobs: Sequence[Job], *, now: float) -> dict[str, str]:
        """Say why these jobs wait, by submission id: in one pass over the queue with them in it."""
        views = self._clusters.views(now=now)
        if any(view.snapshot.awaited or view.health is Health.UNKNOWN for view in views):
            return dict.fromkeys((job.submission_id for job in jobs), NOT_LOOKED)
        numbers = in_numbers(self._queue, now=now)
        in_use = self._live.held_by_user()
        found = waits(numbers, views, now=now, rules=self._rules, in_use=in_use)
        sentences = {line: sentence for wait in found for line, sentence in wait.lines.items()}
        return {job.submission_id: self._last_reason(job, sentences) for job in jobs}

    def _last_reason(self, job: Job, sentences: Mapping[str, str]) -> str:
        if needs := self._queue.needs(job.submission_id):
            return f"it needs {', '.join(needs)}, which had not ended"
        return sentences.get(line_name(self._queued.of(job)), "")

    def _put(self, job: Job, needs: Sequence[str]) -> None:
        limit_s = job.spec.queue_timeout_s
        self._queue.put(
            self._queued.of(job),
            not_before=job.not_before,
            needs=needs,
            deadline=None if limit_s is None else job.changed_at + limit_s,
        )

    # -- one pass

    @property
    def is_ready(self) -> bool:
        """Tell whether a pass is due, and the result of the last one is written."""
        return self.is_due and not self.is_writing

    @property
    def is_writing(self) -> bool:
        """Tell whether the result of the last pass is not on disk yet."""
        return self._unwritten > 0

    def pass_over(self, *, now: float) -> list[Instruction]:
        """Decide about everything that waits: pure, and in the same order for the same input."""
        self.is_due, self._patience_ends_at = False, None
        lines = self._queue.lines(now=now)  # 1. what waits
        if not lines:
            return []
        views = self._clusters.views(now=now)  # 2. one frozen view of every cluster
        ends = self._unworkable(lines, views)
        if not ends:
            in_use = self._live.held_by_user()
            decided = tuple(placements(lines, views, now=now, rules=self._rules, in_use=in_use))  # 3. decide
            self._clusters.start_limits.planned(decided, views)
            self._patience_ends_at = self._patience_end(lines, views, now=now)
            if decided:
                ids = [placement.submission_id for placement in decided]
                ends = [ReadJobs(submission_ids=ids, placements=decided)]
        self._unwritten = len(ends)
        return list(ends)

    def read(self, event: JobsRead) -> list[Instruction]:
        """Go on with the whole jobs; those that are no longer in the queue are forgotten."""
        jobs, asked = event.jobs, event.asked
        self._queue.remove([each for each in asked.submission_ids if each not in jobs])
        if asked.end_because is not None:
            moves = [ended_in_queue(job, asked.end_because) for job in jobs.values()]
        else:
            moves = self._transitions(asked.placements, jobs)
        # Room that was given to a job which is not placed can go to another one.
        self.is_due = self.is_due or len(moves) < len(asked.submission_ids)
        if not moves:
            self.written(is_done=False)
            return []
        occasion = PLACE if asked.placements else UNWORKABLE
        return [self._pending.write(moves, occasion=occasion, known=jobs)]  # 4. compare-and-set

    def written(self, *, is_done: bool) -> None:
        """Take note that a part of the last pass is on disk. Not `is_done`: some of its jobs had gone."""
        self._unwritten -= 1
        self.is_due = self.is_due or not is_done

    def take_request(self, job: Job) -> StartRequest | None:
        """Return what is to be sent for a job that was just placed; None: it was placed by another leader."""
        return self._requests.pop(job.submission_id, None)

    def _unworkable(self, lines: Sequence[Line], views: Sequence[ClusterView]) -> list[ReadJobs]:
        """Ask for the jobs whose environment has failed wherever it could be tried."""
        return [
            ReadJobs(
                submission_ids=list(islice(line.waiters, MOST_ENDED)),
                end_because=f"no cluster can take its environment: {reason}",
            )
            for line, reason in unworkable_lines(lines, views, self._rules)
        ]

    def _patience_end(
        self, lines: Sequence[Line], views: Sequence[ClusterView], *, now: float
    ) -> float | None:
        """Return when jobs will stop waiting for a preferred cluster; None: none does, or nothing ends it."""
        preferred = {name for line in lines if (name := line.sample.preferred_cluster) is not None}
        starts = [at for name in preferred if (at := self._live.on(name).last_start_at) is not None]
        if not starts:
            return None
        lasts_s = patience_s((view.snapshot for view in views), self._rules)
        return min((at + lasts_s for at in starts if at + lasts_s > now), default=None)

    def _transitions(self, decided: Iterable[Placement], jobs: Mapping[str, Job]) -> list[Transition]:
        self._requests = {}
        return [
            self._placed(jobs[placement.submission_id], placement)
            for placement in decided
            if placement.submission_id in jobs and not self._clusters.is_drained(placement.cluster)
        ]

    def _placed(self, job: Job, placement: Placement) -> Transition:
        """Write down the intent in full, before anything is sent: cluster, Ray's id, environment, reasons."""
        request = self._requests[job.submission_id] = compose_submit(
            job.submission_id,
            job.spec,
            job.attempt + 1,
            self._clusters.specs[placement.cluster],
            self._specs,
            origin=self._origin,
            seq=job.seq,
        )
        return placed(
            job,
            request,
            f"placed on {placement.cluster!r}: {placement.sentence}",
            cluster=placement.cluster,
            executor=job.spec.executor,
            session_name=self._clusters.seen(placement.cluster).session_name,
            decision=_record(placement),
        )


def _record(placement: Placement) -> dict[str, Any]:
    """Return a decision as plain values, for `explain`. (`asdict` takes twenty times as long.)"""
    return {
        "submission_id": placement.submission_id,
        "cluster": placement.cluster,
        "scores": {
            name: {"total": score.total, "parts": score.parts, "prefer": score.prefer}
            for name, score in placement.scores.items()
        },
        "refusals": {
            name: {"cause": refusal.cause, "sentence": refusal.sentence, "missing": refusal.missing}
            for name, refusal in placement.refusals.items()
        },
        "sentence": placement.sentence,
    }
