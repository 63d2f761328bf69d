"""Supervises the attempts on all clusters: sends, looks, retries and stops."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace

from ray_multicluster_scheduler.core.events import AttemptsObserved, LogRead, SendEnded, StopTaken
from ray_multicluster_scheduler.core.instructions import (
    Instruction,
    ObserveAttempts,
    PublishSnapshots,
    ReadLog,
    SendAttempt,
    StopAttempt,
)
from ray_multicluster_scheduler.core.known_clusters import KnownClusters
from ray_multicluster_scheduler.core.lifecycle.attempt_request import compose_submit
from ray_multicluster_scheduler.core.lifecycle.attempts import ClusterAttempts
from ray_multicluster_scheduler.core.lifecycle.observe import NOTHING_NEW, Act, Conclusion, interpret
from ray_multicluster_scheduler.core.lifecycle.retry import RetryDecision, decide_retry
from ray_multicluster_scheduler.core.lifecycle.stopping import Presence, is_unwanted
from ray_multicluster_scheduler.core.lifecycle.transitions import (
    MAX_REFUSED_SENDS,
    SendResult,
    after_failure,
    after_send,
    back_to_queue,
    move,
    replace_silent,
    stopped,
)
from ray_multicluster_scheduler.core.live_jobs import LiveJobs, PendingMoves
from ray_multicluster_scheduler.core.pacing import TokenBucket
from ray_multicluster_scheduler.core.placement.capacity import open_rooms
from ray_multicluster_scheduler.core.placement.checks import has_failed_everywhere
from ray_multicluster_scheduler.core.placement.inputs import QueuedJobs
from ray_multicluster_scheduler.core.rules import SchedulerRules
from ray_multicluster_scheduler.errors import InvalidRuntimeEnv
from ray_multicluster_scheduler.model.execution import (
    UNKNOWN_EXECUTOR,
    Capabilities,
    FailureKind,
    StartRequest,
)
from ray_multicluster_scheduler.model.job import Job, Target, Transition
from ray_multicluster_scheduler.model.states import FINAL, JobState

#: What moves are written for.
SEEN = "seen"
SEND = "send"
#: About an attempt that is being sent: what is sent differs from what was written at its placement.
NOTE = "note"
#: The cluster is gone or silent, with all its jobs: they are started anew one after another.
_WHOLE_CLUSTER = frozenset({FailureKind.LOST, FailureKind.SILENT})


class Supervisor:
    """What follows for each live job from what is heard of its attempt."""

    def __init__(
        self,
        clusters: KnownClusters,
        live: LiveJobs,
        pending: PendingMoves,
        rules: SchedulerRules,
        *,
        origin: str,
    ) -> None:
        self._clusters = clusters
        self._live = live
        self._pending = pending
        self._rules = rules
        self._origin = origin
        self._replacements: TokenBucket = rules.replacements
        self._attempts = {name: ClusterAttempts(rules.poll) for name in clusters.specs}
        #: Clusters whose jobs have changed since their next look was worked out.
        self._changed: set[str] = set()
        self._queued = QueuedJobs(tuple(clusters.specs.values()), rules.plan.executors)

    @property
    def is_caught_up(self) -> bool:
        """Tell whether it is known, and written down, how the jobs of all clusters are."""
        return all(attempts.is_caught_up for attempts in self._attempts.values())

    def is_known(self, job: Job) -> bool:
        """Tell whether this version has the executor of a job: if not, its attempt is left alone."""
        return job.spec.executor in self._rules.plan.executors

    def _can(self, job: Job) -> Capabilities:
        return self._rules.plan.executors.get(job.spec.executor, UNKNOWN_EXECUTOR)

    # -- looks

    def due(self, *, now: float) -> list[Instruction]:
        """Return the looks that it is time for."""
        wanted: list[Instruction] = []
        for name in self._changed:
            self._attempts[name].schedule(self._live.on(name).jobs.values(), now=now)
        self._changed.clear()
        for name, attempts in self._attempts.items():
            if attempts.is_observing or now < attempts.observe_at:
                continue
            # Those of an executor that only a newer version has are left to it.
            ours = [job for job in self._live.on(name).jobs.values() if self.is_known(job)]
            jobs = [job for job in ours if job.submission_id not in self._pending.busy]
            if not jobs:
                attempts.nothing_to_observe(is_empty=not ours, now=now)
                continue
            attempts.begin(self._clusters.seen(name), now=now)
            wanted.append(ObserveAttempts(cluster=name, jobs=jobs))
        return wanted

    def wake_at(self) -> float:
        """Return when the next look is due."""
        waiting = (each.observe_at for each in self._attempts.values() if not each.is_observing)
        return min(waiting, default=float("inf"))

    def observe_now(self, cluster: str) -> None:
        """Look at the jobs of a cluster as soon as possible."""
        self._attempts[cluster].observe_now()

    def postpone(self, cluster: str, until: float) -> None:
        """Leave the jobs of a cluster alone for a while."""
        self._attempts[cluster].postpone(until)

    def observed(self, event: AttemptsObserved, *, now: float) -> list[Instruction]:
        """Say what follows from a look."""
        attempts, busy = self._attempts[event.cluster], self._pending.busy
        wanted: list[Instruction] = []
        doubtful: list[Job] = []
        observe = attempts.answered(event, now=now)
        for asked in event.jobs:
            job = self._live.get(asked.submission_id)
            if job is None or job.attempt != asked.attempt or job.submission_id in busy:
                continue
            observation = observe(job)
            if observation is not None and observation.refused_s:
                observation = replace(observation, refusal_counts=self._clusters.refusal_counts(job))
            conclusion = (
                NOTHING_NEW
                if observation is None
                else interpret(job, observation, rules=self._rules.observe, now=now)
            )
            if conclusion.act is Act.CONFIRM:
                doubtful.append(job)
            elif conclusion.act is not Act.KEEP:
                wanted += self._follow(job, conclusion, now=now)
            elif event.answered:
                wanted += self._stop_if_unwanted(job, now=now)
        if doubtful:
            attempts.is_observing = True
            wanted.append(ObserveAttempts(cluster=event.cluster, jobs=doubtful, confirms=True))
        if event.answered and not attempts.is_caught_up:
            left = busy | {job.submission_id for job in doubtful}
            attempts.settle([job.submission_id for job in event.jobs], unsettled=left)
        self._changed.add(event.cluster)
        return wanted

    def written(self, job: Job, before: Job | None, *, now: float) -> list[Instruction]:
        """Take note of a move that is on disk; `before` is the job as it was on a cluster."""
        wanted: list[Instruction] = []
        cluster = job.cluster if before is None else before.cluster
        attempts = self._attempts.get(cluster or "")
        if attempts is None or cluster is None:
            return wanted
        attempts.written(job.submission_id)
        if before is not None and self._live.get(job.submission_id) is None:
            attempts.forget(before)
        elif job.state in {JobState.SUBMITTED, JobState.RUNNING}:
            wanted += self._stop_if_unwanted(job, now=now)
        self._changed.add(cluster)
        return wanted

    # -- sends

    def send(self, job: Job, request: StartRequest) -> list[Instruction]:
        """Send an attempt that was just placed, unless its job was stopped meanwhile."""
        end = stopped(job, Presence.NOT_SENT)
        if end is not None:
            return [self._pending.write([end], occasion=SEND)]
        self._pending.busy.add(job.submission_id)
        return [SendAttempt(job=job, request=request, is_new=True)]

    def send_ended(self, event: SendEnded, *, now: float) -> list[Instruction]:
        """Say what follows from the try to start an attempt."""
        sent, cluster = event.job, event.job.cluster or ""
        self._pending.busy.discard(sent.submission_id)
        job = self._live.get(sent.submission_id)
        if job is None or job.attempt != sent.attempt:
            return []
        if event.outcome.result is SendResult.REFUSED:
            self._attempts[cluster].refused(job, event.outcome.detail)
        self._changed.add(cluster)
        follows = after_send(job, event.outcome, is_new=event.is_new, rules=self._rules.retry, now=now)
        return [] if follows is None else [self._pending.write([follows], occasion=SEND)]

    def is_wanted(self, sent: Job) -> bool:
        """Tell whether an attempt that is about to be sent is still to be started."""
        job = self._live.get(sent.submission_id)
        return job is not None and job.attempt == sent.attempt and job.target is not Target.STOPPED

    def _send_again(self, job: Job, *, now: float) -> list[Instruction]:
        end = stopped(job, Presence.NOT_RECEIVED)
        if end is not None:
            return [self._pending.write([end], occasion=SEEN)]
        refusals = self._attempts[job.cluster or ""].refusals(job)
        if len(refusals) >= MAX_REFUSED_SENDS:
            reason = f"cluster {job.cluster!r} refused it {len(refusals)} times: {refusals[-1]}"
            refused = Conclusion(act=Act.FAIL, failure=FailureKind.REFUSED, reason=reason)
            return self._failed(job, refused, now=now)
        try:
            request = self._composed(job)
        except InvalidRuntimeEnv as error:  # the configuration has changed since the job was placed here
            back = back_to_queue(job, f"not sent: {error}", delay_s=0.0, now=now)
            return [self._pending.write([back], occasion=SEND)]
        self._pending.busy.add(job.submission_id)
        return [SendAttempt(job=job, request=request, is_new=False)]

    def _composed(self, job: Job) -> StartRequest:
        """Compose the request anew: the same comes out as when the job was placed, with the same clusters."""
        specs = self._clusters.specs
        return compose_submit(
            job.submission_id,
            job.spec,
            job.attempt,
            specs[job.cluster or ""],
            tuple(specs.values()),
            origin=self._origin,
            seq=job.seq,
        )

    # -- what follows

    def _follow(self, job: Job, conclusion: Conclusion, *, now: float) -> list[Instruction]:
        if conclusion.act is Act.SEND:
            return self._send_again(job, now=now)
        if conclusion.act in {Act.FAIL, Act.REPLACE}:
            return self._failed(job, conclusion, now=now)
        assert conclusion.state is not None
        if conclusion.state in {JobState.RUNNING, JobState.SUCCEEDED}:
            self._clusters.setup_worked(job)
        if conclusion.state is JobState.SUCCEEDED and self._can(job).quick_ends_count:
            self._clusters.quarantine.ended(job, None, now=now)
        moves = [move(job, conclusion.state, conclusion.reason, **conclusion.changes)]
        return self._write(job, moves, reads_log=conclusion.state in FINAL)

    def _failed(self, job: Job, conclusion: Conclusion, *, now: float) -> list[Instruction]:
        assert conclusion.failure is not None
        kind, wanted = conclusion.failure, []
        elsewhere = True
        if kind is FailureKind.NO_ENVIRONMENT:
            reason = self._pending.without_secrets(conclusion.reason, job)
            if self._clusters.setup_failed(job, reason, now=now):
                wanted.append(PublishSnapshots(urgent=True))  # before the end of the job
            elsewhere = self._may_work_elsewhere(job, now=now)
        retry = self._retry(job, kind, elsewhere=elsewhere, now=now)
        if conclusion.act is Act.REPLACE:
            moves = replace_silent(job, conclusion, retry, now=now)
        else:
            times = {
                name: conclusion.changes[name]
                for name in ("started_at", "ended_at")
                if name in conclusion.changes
            }
            if self._can(job).quick_ends_count:
                self._clusters.quarantine.ended(replace(job, **times), kind, now=now)
            moves = after_failure(job, conclusion, retry, now=now)
        if kind in _WHOLE_CLUSTER and any(each.new is JobState.QUEUED for each in moves):
            self._replacements = self._replacements.taken(now)
        return [*wanted, *self._write(job, moves, reads_log=kind not in _WHOLE_CLUSTER)]

    def _retry(self, job: Job, kind: FailureKind, *, elsewhere: bool, now: float) -> RetryDecision:
        return decide_retry(
            job,
            kind,
            rules=self._rules.retry,
            jitter=_spread(job),
            least_delay_s=self._replacements.wait_s(now) if kind in _WHOLE_CLUSTER else 0.0,
            elsewhere=elsewhere,
            restartable=self._can(job).restartable,
        )

    def _may_work_elsewhere(self, job: Job, *, now: float) -> bool:
        """Tell whether some cluster is left that might set a job's environment up."""
        rooms = open_rooms(self._clusters.views(now=now))
        return has_failed_everywhere(self._queued.of(job), rooms, self._rules.plan) is None

    def _write(self, job: Job, moves: Sequence[Transition], *, reads_log: bool) -> list[Instruction]:
        if not moves:
            return []
        if not reads_log or job.remote_id is None:
            return [self._pending.write(moves, occasion=SEEN)]
        self._pending.busy.add(job.submission_id)
        return [ReadLog(job=job, moves=moves)]

    def log_read(self, event: LogRead) -> list[Instruction]:
        """Write the end of an attempt, with its log and its result."""
        moves = event.asked.moves
        return [self._pending.write(moves, occasion=SEEN, log=event.text, result=event.result)]

    # -- stops

    def _stop_if_unwanted(self, job: Job, *, now: float) -> list[Instruction]:
        """Ask for the stop of an attempt that the user stopped, or that ran too long."""
        if job.target is not Target.STOPPED and job.spec.timeout_s is None:
            return []
        remote_id, cluster = job.remote_id or "", job.cluster or ""
        if not is_unwanted(job, now=now) or not self._attempts[cluster].stops.ask(remote_id, now=now):
            return []
        return [StopAttempt(cluster=cluster, remote_id=remote_id, executor=job.spec.executor)]

    def stop_taken(self, event: StopTaken, *, now: float) -> None:
        """Take note that a cluster is stopping an attempt."""
        self._attempts[event.cluster].stops.taken(event.remote_id, now=now)


def _spread(job: Job) -> float:
    """Return a number from 0 to 1: another for each attempt, and always the same for one."""
    return zlib.crc32(f"{job.submission_id} {job.attempt}".encode()) / 2**32
