"""A store, clusters and a clock without any I/O, which drive the real `SchedulerState` by plain calls.

Every instruction is carried out after the delay that it would take, on a clock that jumps from one event to
the next. Nothing is faked in the scheduler: moves are made by `apply_transition`, as the real store does.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any

from tests.support.builders import NOW, a_cluster, a_snapshot, a_spec

from ray_multicluster_scheduler.config import Settings
from ray_multicluster_scheduler.core import events, instructions
from ray_multicluster_scheduler.core.instructions import Instruction
from ray_multicluster_scheduler.core.lifecycle.transitions import (
    SendOutcome,
    SendResult,
    apply_transition,
    check,
    holds,
    waited_too_long,
)
from ray_multicluster_scheduler.core.state import SchedulerState
from ray_multicluster_scheduler.engine.leader import scheduler_rules
from ray_multicluster_scheduler.executors.registry import Registry
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, Health, Witness
from ray_multicluster_scheduler.model.execution import AttemptStatus, FailureKind, Sighting, StartRequest
from ray_multicluster_scheduler.model.job import Attempt, Job, JobSpec, Target
from ray_multicluster_scheduler.model.states import JobState

#: How long each thing takes, in seconds.
WRITE_S = 0.01
READ_S = 0.002
SEND_S = 0.1
OBSERVE_S = 0.05
LOG_S = 0.02
STOP_S = 0.05


@dataclass
class VirtualAttempt:
    """One run on a virtual cluster."""

    request: StartRequest
    started_at: float
    ends_at: float
    exit_code: int = 0
    stopped_at: float | None = None

    def sighting(self, now: float) -> Sighting:
        """How the cluster tells of it."""
        if self.stopped_at is None and now < self.ends_at:
            return self.running
        return self._sighting(AttemptStatus.STOPPED if self.stopped_at is not None else self._end())

    @cached_property
    def running(self) -> Sighting:
        """How the cluster tells of it while it runs."""
        return self._sighting(AttemptStatus.RUNNING)

    def _end(self) -> AttemptStatus:
        return AttemptStatus.FAILED if self.exit_code else AttemptStatus.SUCCEEDED

    def _sighting(self, status: AttemptStatus) -> Sighting:
        return Sighting(
            remote_id=self.request.remote_id,
            status=status,
            exit_code=self.exit_code if status.final else None,
            failure=FailureKind.USER if status is AttemptStatus.FAILED else None,
            metadata=self.request.metadata,
            started_at=self.started_at,
        )


@dataclass
class VirtualCluster:
    """A cluster that runs what it is sent for as long as its command says."""

    name: str
    cpus: float
    session: int = 1
    is_down: bool = False
    attempts: dict[str, VirtualAttempt] = field(default_factory=dict)
    #: Everything that ever ran here, lost or not.
    history: list[tuple[str, float]] = field(default_factory=list)

    def snapshot(self, now: float) -> ClusterSnapshot:
        """What a probe sees of it."""
        if self.is_down:
            return a_snapshot(self.name, {"CPU": self.cpus}, health=Health.UNHEALTHY, problem="down")
        running = [each for each in self.attempts.values() if each.stopped_at is None and now < each.ends_at]
        return a_snapshot(
            self.name,
            {"CPU": self.cpus},
            used={"CPU": sum(each.request.entrypoint_num_cpus or 1.0 for each in running)},
            session_name=f"{self.name}-{self.session}",
            observed_at=now,
        )

    def kill(self) -> None:
        """Lose the head, and with it everything that ran."""
        self.is_down = True
        self.attempts.clear()

    def restart(self) -> None:
        """Come back with nothing of what was there before."""
        self.is_down = False
        self.session += 1


class VirtualWorld:
    """Jobs, clusters and time. `run` goes on until nothing is left to happen, or until a time."""

    def __init__(self, clusters: Mapping[str, float], **settings: Any) -> None:
        self.now = NOW
        self.clusters = {name: VirtualCluster(name, cpus) for name, cpus in clusters.items()}
        self.jobs: dict[str, Job] = {}
        self.attempts: dict[str, list[Attempt]] = {}
        self.told: list[Instruction] = []
        #: Wanted since the last commit began: they share the next one.
        self._wanted: list[instructions.WriteMoves] = []
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._seq = count(1)
        self._heard: list[events.Event] = []
        self.state = SchedulerState(
            [a_cluster(name, max_running_jobs=10_000) for name in clusters],
            scheduler_rules(Settings(**settings), Registry().capabilities()),
            origin="virtual",
        )
        for cluster in self.clusters.values():
            self.probe(cluster, changed=True)

    # -- what people do

    def submit(self, submission_id: str, *, runs_s: float, **spec: Any) -> None:
        """Accept a job that runs for so long."""
        self.submit_spec(submission_id, a_spec(entrypoint=f"sleep {runs_s}", **spec))

    def submit_spec(self, submission_id: str, spec: JobSpec) -> None:
        """Accept a job."""
        job = Job(
            seq=next(self._seq),
            submission_id=submission_id,
            spec=spec,
            accepted_at=self.now,
            changed_at=self.now,
        )
        self.jobs[submission_id] = job
        needs = [need for need in spec.depends_on if self.jobs[need].state is not JobState.SUCCEEDED]
        self._heard.append(events.JobsAccepted(jobs=[(job, needs)]))

    def stop(self, submission_id: str) -> None:
        """Ask for the stop of a job."""
        job = self.jobs[submission_id]
        self.jobs[submission_id] = replace(job, target=Target.STOPPED, stop_reason="stopped by the user")
        live = [self.jobs[submission_id]] if job.cluster is not None else []
        self._heard.append(events.StopsRequested(jobs=live))
        self._read_queue()

    def probe(self, cluster: VirtualCluster, *, changed: bool) -> None:
        """Let the scheduler know how a cluster is."""
        snapshot = cluster.snapshot(self.now)
        self._heard.append(events.ClusterProbed(snapshot=snapshot, changed=changed))
        if not cluster.is_down:
            addresses = a_cluster(cluster.name).addresses
            head = Witness(session_name=snapshot.session_name or "", addresses=addresses)
            self._heard.append(events.HeadSeen(cluster=cluster.name, head=head, is_open=True))

    def hear(self, event: events.Event) -> None:
        """Let the scheduler hear an event of any kind."""
        self._heard.append(event)

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Do something at a time."""
        heapq.heappush(self._agenda, (when, next(self._order), action))

    # -- time

    def run(self, *, until: float = float("inf")) -> None:
        """Let time pass."""
        wake_at = self._decide()
        while True:
            next_at = min(wake_at, self._agenda[0][0] if self._agenda else float("inf"))
            if next_at >= until or next_at == float("inf"):
                return
            self.now = max(self.now, next_at)
            while self._agenda and self._agenda[0][0] <= self.now:
                heapq.heappop(self._agenda)[2]()
            wake_at = self._decide()

    def _decide(self) -> float:
        heard, self._heard = self._heard, []
        for event in [*heard, events.Tick()]:
            wake_at = self._carry_out(self.state.handle(event, now=self.now))
        return wake_at

    def _carry_out(self, wanted: Sequence[Instruction]) -> float:
        wake_at = float("inf")
        for instruction in wanted:
            self.told.append(instruction)
            if isinstance(instruction, instructions.WakeUp):
                wake_at = instruction.at
            else:
                self._begin(instruction)
        return wake_at

    def _begin(self, wanted: Instruction) -> None:
        carriers: dict[type, tuple[float, Callable[[Any], None]]] = {
            instructions.ReadJobs: (READ_S, self._read_jobs),
            instructions.ReadQueue: (READ_S, lambda _: self._read_queue()),
            instructions.SendAttempt: (SEND_S, self._send),
            instructions.ObserveAttempts: (OBSERVE_S, self._observe),
            instructions.StopAttempt: (STOP_S, self._stop),
            instructions.ReadLog: (LOG_S, self._read_log),
            instructions.RefreshUsage: (OBSERVE_S, self._refresh),
        }
        if isinstance(wanted, instructions.WriteMoves):
            if not self._wanted:
                self.at(self.now + WRITE_S, self._commit)
            self._wanted.append(wanted)
        elif type(wanted) in carriers:
            delay_s, carry = carriers[type(wanted)]
            self.at(self.now + delay_s, lambda: carry(wanted))

    # -- the store

    def _read_jobs(self, wanted: instructions.ReadJobs) -> None:
        jobs = {each: self.jobs[each] for each in wanted.submission_ids}
        waiting = {each: job for each, job in jobs.items() if job.state is JobState.QUEUED}
        self._heard.append(events.JobsRead(asked=wanted, jobs=waiting))

    def _commit(self) -> None:
        batch, self._wanted = self._wanted, []
        moved: dict[str, Job] = {}
        for transition in [transition for wanted in batch for transition in wanted.moves]:
            check(transition)
            job = self.jobs[transition.submission_id]
            if holds(job, transition):
                move = apply_transition(job, transition, now=self.now)
                self.jobs[job.submission_id] = moved[job.submission_id] = move.after
                if move.new_attempt is not None:
                    self.attempts.setdefault(job.submission_id, []).append(move.new_attempt)
                elif move.attempt_values:
                    last = self.attempts[job.submission_id]
                    last[-1] = replace(last[-1], **move.attempt_values)
        self._heard.append(events.MovesWritten(asked=batch, moved=list(moved.values())))

    def _read_queue(self) -> None:
        ends = [
            (job, reason)
            for job in self.jobs.values()
            if job.state is JobState.QUEUED and (reason := self._must_end(job))
        ]
        if ends:
            self._heard.append(events.JobsBlocked(jobs=ends))

    def _must_end(self, job: Job) -> str | None:
        if job.target is Target.STOPPED:
            return job.stopped_because
        failed = [
            need
            for need in job.spec.depends_on
            if self.jobs[need].final and self.jobs[need].state is not JobState.SUCCEEDED
        ]
        if failed:
            return f"dependency {failed[0]!r} failed"
        limit_s = job.spec.queue_timeout_s
        is_over = limit_s is not None and job.changed_at + limit_s <= self.now
        return waited_too_long(job) if is_over else None

    # -- the clusters

    def _send(self, wanted: instructions.SendAttempt) -> None:
        job, cluster = wanted.job, self.clusters[wanted.job.cluster or ""]
        outcome = SendOutcome(result=SendResult.ACCEPTED, detail="accepted")
        if cluster.is_down:
            outcome = SendOutcome(result=SendResult.UNREACHABLE, detail="connection refused")
        elif not self.state.is_wanted(job):
            outcome = SendOutcome(result=SendResult.NOT_WANTED)
        elif wanted.request.remote_id not in cluster.attempts:
            _, runs_s, *code = wanted.request.entrypoint.split()
            exit_code = int(code[0]) if code else 0
            attempt = VirtualAttempt(wanted.request, self.now, self.now + float(runs_s), exit_code)
            cluster.attempts[wanted.request.remote_id] = attempt
            cluster.history.append((job.submission_id, self.now))
        self._heard.append(events.SendEnded(job=job, is_new=wanted.is_new, outcome=outcome))

    def _observe(self, wanted: instructions.ObserveAttempts) -> None:
        cluster = self.clusters[wanted.cluster]
        ids = [job.remote_id or "" for job in wanted.jobs]
        found = {each: cluster.attempts[each].sighting(self.now) for each in ids if each in cluster.attempts}
        self._heard.append(
            events.AttemptsObserved(
                cluster=cluster.name,
                jobs=wanted.jobs,
                answered=not cluster.is_down,
                found={} if cluster.is_down else found,
                session_name=f"{cluster.name}-{cluster.session}",
                confirmed=wanted.confirms,
                asked_at=self.now - OBSERVE_S,
                took_s=OBSERVE_S,
                silence="connection refused" if cluster.is_down else "",
                refused=cluster.is_down,
            )
        )

    def _stop(self, wanted: instructions.StopAttempt) -> None:
        cluster = self.clusters[wanted.cluster]
        attempt = cluster.attempts.get(wanted.remote_id)
        if attempt is not None and not attempt.sighting(self.now).status.final:
            attempt.stopped_at = self.now
            self._heard.append(events.StopTaken(cluster=cluster.name, remote_id=wanted.remote_id))

    def _read_log(self, wanted: instructions.ReadLog) -> None:
        down = self.clusters[wanted.job.cluster or ""].is_down
        self._heard.append(events.LogRead(asked=wanted, text=None if down else "it ran\n"))

    def _refresh(self, wanted: instructions.RefreshUsage) -> None:
        self.probe(self.clusters[wanted.cluster], changed=False)
