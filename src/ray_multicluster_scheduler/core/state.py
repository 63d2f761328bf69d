"""The scheduler's state: events in, instructions out.

Everything that the leader knows of jobs and clusters is here, and every decision about them. There is no I/O,
no clock and no asyncio: the driver passes in events with their time and executes the returned instructions.
The driver is the engine, with a store and real clusters (engine/leader.py), or a test.

A job with an instruction under way is busy: nothing else is decided about it before the result is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from ray_multicluster_scheduler.core import events as on
from ray_multicluster_scheduler.core.instructions import (
    ForgetAttempt,
    Instruction,
    PublishSnapshots,
    ReadQueue,
    RefreshUsage,
    SweepCluster,
    WakeUp,
    WriteMoves,
)
from ray_multicluster_scheduler.core.known_clusters import KnownClusters
from ray_multicluster_scheduler.core.lifecycle.transitions import (
    REPLACED,
    ended_in_queue,
    waited_too_long,
    without_cluster,
)
from ray_multicluster_scheduler.core.live_jobs import LiveJobs, PendingMoves
from ray_multicluster_scheduler.core.placement.wait_reasons import waits
from ray_multicluster_scheduler.core.placer import PLACE, UNWORKABLE, Placer
from ray_multicluster_scheduler.core.rules import SchedulerRules
from ray_multicluster_scheduler.core.supervisor import NOTE, Supervisor
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec, FailedSetup, Witness
from ray_multicluster_scheduler.model.decision import Wait
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState

#: What the moves of jobs in the queue are written for.
QUEUE = "queue"
#: Nothing is known of a cluster that is no longer configured.
ORPHAN = "orphan"


class SchedulerState:
    """Queue, live jobs, clusters, and what is under way. `handle` is the only way in.

    `origin` marks our attempts on clusters.
    """

    def __init__(
        self,
        clusters: Sequence[ClusterSpec],
        rules: SchedulerRules,
        *,
        origin: str,
        live: Sequence[Job] = (),
        failed_setups: Mapping[str, Mapping[str, FailedSetup]] | None = None,
        witnesses: Mapping[str, Witness | None] | None = None,
    ) -> None:
        self._rules = rules
        self.live = LiveJobs(live)
        self.clusters = KnownClusters(
            clusters,
            self.live,
            failed_setups=failed_setups or {},
            witnesses=witnesses or {},
            most_starts=rules.most_starts,
            quarantine=rules.quarantine,
            executors=rules.plan.executors,
        )
        self._pending = PendingMoves(self.live, clusters)
        self._placer = Placer(self.clusters, self.live, self._pending, rules.plan, origin=origin)
        self._supervisor = Supervisor(self.clusters, self.live, self._pending, rules, origin=origin)
        self._handlers: Mapping[type, Callable[[Any, float], list[Instruction]]] = {
            on.JobsAccepted: self._jobs_accepted,
            on.StopsRequested: self._stops_requested,
            on.JobsBlocked: self._jobs_blocked,
            on.DrainsRead: self._drains_read,
            on.JobsRead: lambda event, _: self._placer.read(event),
            on.MovesWritten: self._moves_written,
            on.ClusterProbed: self._cluster_probed,
            on.AttemptsObserved: lambda event, now: self._supervisor.observed(event, now=now),
            on.HeadSeen: self._head_seen,
            on.ObservationFailed: self._observation_failed,
            on.SendEnded: lambda event, now: self._supervisor.send_ended(event, now=now),
            on.StopTaken: self._stop_taken,
            on.LogRead: lambda event, _: self._supervisor.log_read(event),
            on.Tick: self._tick,
        }

    def handle(self, event: on.Event, *, now: float) -> list[Instruction]:
        """Take note of what has happened, and return what is to be done about it, in this order."""
        return self._handlers[type(event)](event, now)

    # -- questions

    @property
    def is_caught_up(self) -> bool:
        """Tell whether it is known, and written down, how the jobs of all clusters are."""
        return self._supervisor.is_caught_up

    def is_wanted(self, job: Job) -> bool:
        """Tell whether an attempt that is about to be sent is still to be started."""
        return self._supervisor.is_wanted(job)

    def snapshots(self, *, now: float) -> tuple[ClusterSnapshot, ...]:
        """Return by what decisions are made, for others to know."""
        return tuple(self.clusters.snapshots(now=now).values())

    def waits(self, *, now: float) -> Callable[[], tuple[Wait, ...]]:
        """Return a function that says why the jobs in the queue wait, by the state of now.

        It may take a while where there are many kinds of jobs, and may be called in another thread.
        """
        queue, views = self._placer.in_numbers(now=now), self.clusters.views(now=now)
        rules, in_use = self._rules.plan, self.live.held_by_user()
        return lambda: waits(queue, views, now=now, rules=rules, in_use=in_use)

    # -- what others wrote

    def _jobs_accepted(self, event: on.JobsAccepted, _now: float) -> list[Instruction]:
        self._placer.accepted(event)
        return []

    def _stops_requested(self, event: on.StopsRequested, _now: float) -> list[Instruction]:
        for job in event.jobs:
            known = self.live.get(job.submission_id)
            if known is not None and known != job:
                self.live.put(job)
                if job.cluster in self.clusters.specs:
                    self._supervisor.observe_now(job.cluster or "")
        return self._orphans()

    def _orphans(self) -> list[Instruction]:
        """Write what becomes of jobs whose cluster is no longer configured."""
        is_known = self._supervisor.is_known
        gone = [name for name in self.live.clusters() if name not in self.clusters.specs]
        jobs = [job for name in gone for job in self.live.on(name).jobs.values() if is_known(job)]
        free = [job for job in jobs if job.submission_id not in self._pending.busy]
        moves = [move for job in free if (move := without_cluster(job)) is not None]
        return [self._pending.write(moves, occasion=ORPHAN)] if moves else []

    def _jobs_blocked(self, event: on.JobsBlocked, now: float) -> list[Instruction]:
        known = {job.submission_id: job for job, _ in event.jobs}
        free = [(job, why) for job, why in event.jobs if job.submission_id not in self._pending.busy]
        overdue = [job for job, why in free if job.spec.queue_timeout_s and why == waited_too_long(job)]
        waited = self._placer.why_waiting(overdue, now=now) if overdue else {}
        reasons = {each: f". Last reason: {why}" for each, why in waited.items() if why}
        moves = [ended_in_queue(job, why + reasons.get(job.submission_id, "")) for job, why in free]
        return [self._pending.write(moves, occasion=QUEUE, known=known)] if moves else []

    def _drains_read(self, event: on.DrainsRead, _now: float) -> list[Instruction]:
        if event.drains != self.clusters.drains:
            self.clusters.drains = event.drains
            self._placer.is_due = True
        return []

    # -- what was written

    def _moves_written(self, event: on.MovesWritten, now: float) -> list[Instruction]:
        wanted: list[Instruction] = []
        for asked in event.asked:
            if asked.occasion != NOTE:  # its job is still being sent
                self._pending.busy.difference_update(move.submission_id for move in asked.moves)
        for job in event.moved:
            wanted += self._moved(job, now)
        ended_on = {job.cluster for job in event.moved if job.final and job.cluster in self.clusters.specs}
        wanted += [RefreshUsage(cluster=name) for name in sorted(filter(None, ended_on))]
        self.clusters.start_limits.moved(event.moved, now=now)
        moved = {job.submission_id for job in event.moved}
        for asked in event.asked:
            wanted += self._after_write(asked, moved)
        return [*wanted, PublishSnapshots(urgent=False)]  # the start limits and the warm environments

    def _moved(self, job: Job, now: float) -> list[Instruction]:
        before = self.live.get(job.submission_id)
        self.live.put(job)
        self._placer.moved(job)
        wanted = self._supervisor.written(job, before, now=now)
        if job.state is JobState.PLACED:
            request = self._placer.take_request(job)
            if request is not None:
                wanted += self._supervisor.send(job, request)
        elif job.final and job.state is not JobState.SUCCEEDED and self._placer.is_needed(job):
            wanted.append(ReadQueue())
        return wanted

    def _after_write(self, asked: WriteMoves, moved: Set[str]) -> list[Instruction]:
        if asked.occasion in {PLACE, UNWORKABLE}:
            self._placer.written(is_done=all(move.submission_id in moved for move in asked.moves))
        replaced = {
            asked.known[move.submission_id].cluster or ""
            for move in asked.moves
            if move.attempt_changes.get("outcome") == REPLACED
        }
        # A replaced attempt may run on: it is looked for as soon as the cluster answers.
        wanted: list[Instruction] = [SweepCluster(cluster=name) for name in sorted(replaced)]
        if asked.log is not None:
            wanted += self._kept(asked, moved)
        return wanted

    def _kept(self, asked: WriteMoves, moved: Set[str]) -> list[Instruction]:
        """Let the cluster forget an attempt whose end was just written with its log."""
        first = asked.moves[0].submission_id
        ended = asked.known.get(first)
        if first not in moved or ended is None or ended.cluster is None or ended.remote_id is None:
            return []
        can = self._rules.plan.executors.get(ended.spec.executor)
        if can is None or not can.deletable:
            return []
        return [ForgetAttempt(cluster=ended.cluster, remote_id=ended.remote_id, executor=ended.spec.executor)]

    # -- what clusters say

    def _cluster_probed(self, event: on.ClusterProbed, _now: float) -> list[Instruction]:
        name = event.snapshot.name
        self.clusters.probed(event.snapshot)
        self._placer.is_due = True
        wanted: list[Instruction] = [PublishSnapshots(urgent=event.changed)]
        if event.changed:  # jobs that were given up may be back with it
            self._supervisor.observe_now(name)
            wanted.append(SweepCluster(cluster=name))
        return wanted

    def _head_seen(self, event: on.HeadSeen, _now: float) -> list[Instruction]:
        is_news = self.clusters.head_seen(event.cluster, event.head, is_open=event.is_open)
        return [PublishSnapshots(urgent=True)] if is_news else []  # the next leader must know it

    def _observation_failed(self, event: on.ObservationFailed, _now: float) -> list[Instruction]:
        self._pending.busy.difference_update(event.jobs)
        self._supervisor.postpone(event.cluster, event.again_at)
        return []

    def _stop_taken(self, event: on.StopTaken, now: float) -> list[Instruction]:
        self._supervisor.stop_taken(event, now=now)
        return []

    # -- time

    def _tick(self, _event: on.Tick, now: float) -> list[Instruction]:
        wanted = self._supervisor.due(now=now)
        if self._placer.passed_deadline(now=now):
            wanted.append(ReadQueue())
        change_at = self._placer.wake_at()
        if change_at is not None and change_at <= now:
            self._placer.is_due = True
        if self._placer.is_ready:
            wanted += self._placer.pass_over(now=now)
        # While the last pass is being written there is no other one: its result wakes us.
        due = self._supervisor.wake_at(), None if self._placer.is_writing else self._placer.wake_at()
        return [*wanted, WakeUp(at=min(at for at in due if at is not None))]
