"""The loops of one leader, from taking the lease to losing it.

All decisions are made by `SchedulerState` (core/state.py). Here events are handed to it in the order in which
they come, and its instructions are carried out: on the store, on the clusters, by the clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ray_multicluster_scheduler.asyncio_tools import Background, both, repeat, together
from ray_multicluster_scheduler.clock import SteadyClock
from ray_multicluster_scheduler.config import Settings
from ray_multicluster_scheduler.core import events, instructions
from ray_multicluster_scheduler.core.events import ClusterProbed, Event
from ray_multicluster_scheduler.core.instructions import Instruction, WakeUp
from ray_multicluster_scheduler.core.pacing import TokenBucket
from ray_multicluster_scheduler.core.placement.plan import warm_up
from ray_multicluster_scheduler.core.rules import (
    ONLY_DEFAULT,
    ObserveRules,
    PlanRules,
    PollRules,
    QuarantineRules,
    RetryRules,
    SchedulerRules,
)
from ray_multicluster_scheduler.core.state import SchedulerState
from ray_multicluster_scheduler.engine.cleanup import Housekeeper, Tidier
from ray_multicluster_scheduler.engine.cluster_io import ClusterIO
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.engine.store_io import MoveWriter, Publisher, StoreReader, tell_decisions
from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.model.execution import Capabilities
from ray_multicluster_scheduler.model.job import Job, Lease, left_alone
from ray_multicluster_scheduler.ports import CLOCK_STEP_S

# From the settings of clusters.yaml to the rules that the scheduler decides by.


def scheduler_rules(
    settings: Settings, executors: Mapping[str, Capabilities] = ONLY_DEFAULT
) -> SchedulerRules:
    """Return what the scheduler decides by. `executors` is what each of them can do."""
    rate = settings.replacement_rate
    return SchedulerRules(
        plan=plan_rules(settings, executors),
        observe=ObserveRules(
            unreachable_after_s=settings.unreachable_after_s,
            lost_after_refused_s=settings.lost_after_refused_s,
        ),
        retry=RetryRules(
            max_infra_retries=settings.max_infra_retries,
            delay_s=settings.retry_delay_s,
            max_delay_s=settings.retry_max_delay_s,
        ),
        quarantine=QuarantineRules(),
        poll=PollRules(poll_interval_s=settings.poll_interval_s, probe_interval_s=settings.probe_interval_s),
        replacements=TokenBucket(per_s=rate, burst=max(1, round(rate))),
        most_starts=settings.max_starts_in_flight,
    )


def plan_rules(settings: Settings, executors: Mapping[str, Capabilities] = ONLY_DEFAULT) -> PlanRules:
    """Return the rules of the planner."""
    return PlanRules(starvation_after_s=settings.starvation_after_s, executors=executors)


log = logging.getLogger(__name__)

#: The lease is renewed this often within its life.
RENEWALS = 3
#: Between two looks at what others wrote: a hundred who submit in a second cost a few looks, not a hundred.
REST_S = 0.03
#: Nothing happens for this long: look again all the same.
IDLE_S = 5.0


class ClockWasSet(Exception):
    """Time has jumped: this leadership ends, and the next one begins with the times of all jobs moved."""

    def __init__(self, by_s: float) -> None:
        super().__init__(f"the clock was set by {by_s:+.1f} s")
        self.by_s = by_s


class Leadership:
    """Leads while the lease holds. `changed` is set when others have written to the store.

    Its time does not jump: jobs that wait or run must not be ended by somebody who sets the clock.
    """

    def __init__(self, context: EngineContext, lease: Lease, changed: asyncio.Event) -> None:
        self._clock = SteadyClock(context.clock)
        self._context = context = replace(context, clock=self._clock)
        self._lease = lease
        self._changed = changed
        self._state: SchedulerState | None = None
        self._events: list[Event] = []
        self._wake = asyncio.Event()
        self._tasks = Background()
        self._clusters: Mapping[str, ClusterIO] = {}
        self._tidiers: Mapping[str, Tidier] = {}
        self._carriers: Mapping[type, Callable[[Any], object]] = {}
        self._reader = StoreReader(context, self._hear)

    async def run(self) -> None:
        """Lead until a loop fails, the lease is lost, or the task is cancelled."""
        # A long queue takes longer to read than a lease lasts.
        await together([self._renew_lease(), self._lead()])

    # -- the lease

    async def _renew_lease(self) -> None:
        context, ttl_s = self._context, self._context.settings.lease_ttl_s
        while True:
            await asyncio.sleep(ttl_s / RENEWALS)
            if abs(by_s := self._clock.step_s()) >= CLOCK_STEP_S:
                raise ClockWasSet(by_s)
            now, lease = self._clock.now(), self._lease
            self._lease = await context.offload(context.store.leases.renew, lease, ttl_s=ttl_s, now=now)

    def _leads(self) -> bool:
        """Tell whether the lease still holds, as far as this process knows.

        A leader that was paused must not start anything before it has asked: its successor may have.
        """
        return self._clock.now() < self._lease.expires_at

    # -- the loops

    async def _lead(self) -> None:
        await self._settle_clock()
        state = await self._load()
        context, watch, epoch = self._context, self._context.watch, self._lease.epoch
        writer = MoveWriter(context, epoch=epoch, written=self._hear, failed=self._write_failed)
        publisher = Publisher(context, lambda: state.snapshots(now=self._clock.now()), epoch=epoch)
        self._clusters = {
            spec.name: ClusterIO(
                context,
                spec,
                self._hear,
                is_wanted=lambda job: self._leads() and state.is_wanted(job),
                write=writer.write,
            )
            for spec in context.config.clusters
        }
        self._tidiers = {name: Tidier(context, name, state.live, epoch=epoch) for name in self._clusters}
        self._carriers = self._carriers_of(writer, publisher)
        unsubscribe = watch.subscribe(
            lambda probed: self._hear(ClusterProbed(snapshot=probed.snapshot, changed=probed.changed))
        )
        watch.expect_first_look()
        self._hear_probes()
        try:
            await together(
                [
                    self._decide(state),
                    writer.run(),
                    publisher.run(),
                    publisher.publish_waits(lambda: state.waits(now=self._clock.now())),
                    self._watch(),
                    repeat(self._reader.read, self._changed, lambda: IDLE_S, rest_s=REST_S),
                    Housekeeper(context, self._reader, state.live.all, epoch=epoch).run(),
                    self._tasks.run(),
                    *(tidier.run() for tidier in self._tidiers.values()),
                ]
            )
        finally:
            unsubscribe()
            await self._tasks.close()

    async def _settle_clock(self) -> None:
        clock, context = self._clock, self._context
        moved_by_s = await context.offload(
            context.store.leases.settle_clock,
            boot=clock.boot(),
            offset=clock.offset,
            epoch=self._lease.epoch,
            now=clock.now(),
        )
        if moved_by_s:
            log.warning("the clock was set; times of open jobs are moved with it by %.1f s", moved_by_s)

    async def _load(self) -> SchedulerState:
        """Take over what the leader before has left: live jobs, the queue, what it has published."""
        context, store = self._context, self._context.store
        executors = await asyncio.to_thread(context.executors.registry.capabilities)
        published = await context.offload(store.clusters.load_snapshots)
        live = await context.offload(store.queue.live)
        for job in live:
            if job.spec.executor not in executors:
                log.warning("%s: %s", job.submission_id, left_alone(job))
        state = self._state = SchedulerState(
            context.config.clusters,
            scheduler_rules(context.settings, executors),
            origin=store.store_id,
            live=live,
            failed_setups={name: snapshot.failed_setups for name, snapshot in published.items()},
            witnesses={name: snapshot.witness for name, snapshot in published.items()},
        )
        await self._reader.read()
        return state

    async def _watch(self) -> None:
        watch = self._context.watch
        await both(watch.first_look(), asyncio.to_thread(warm_up))
        self._hear_probes()  # from here on nothing waits for those that did not answer
        await watch.run()

    def _hear_probes(self) -> None:
        for snapshot in self._context.watch.snapshots().values():
            self._hear(ClusterProbed(snapshot=snapshot, changed=False))

    # -- events in, instructions out

    def _hear(self, event: Event) -> None:
        if isinstance(event, events.JobsAccepted) and self._state is not None:
            # Taken in at once, page by page: the whole jobs of a long queue must not be in memory together.
            self._state.handle(event, now=self._clock.now())
        else:
            self._events.append(event)
        self._wake.set()

    async def _decide(self, state: SchedulerState) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            heard, self._events = self._events, []
            for event in heard:
                self._carry_out(self._handle(state, event))
            wake_at = self._carry_out(state.handle(events.Tick(), now=self._clock.now()))
            alarm = loop.call_later(max(0.0, min(wake_at - self._clock.now(), IDLE_S)), self._wake.set)
            await self._wake.wait()
            alarm.cancel()

    def _handle(self, state: SchedulerState, event: Event) -> list[Instruction]:
        """Hand an event to the state. A bug that a cluster's answer wakes concerns no other cluster."""
        cluster, jobs = _whose(event)
        if cluster is None:
            return state.handle(event, now=self._clock.now())
        try:
            wanted = state.handle(event, now=self._clock.now())
        except StoreError:
            raise
        except Exception as bug:  # noqa: BLE001 - reported as what it is, and tried again
            failed = self._clusters[cluster].broken(bug, [job.submission_id for job in jobs])
            return state.handle(failed, now=self._clock.now())
        if isinstance(event, events.AttemptsObserved):
            self._clusters[cluster].isolation.worked()
        return wanted

    def _write_failed(self, wanted: instructions.WriteMoves, bug: Exception) -> None:
        ids = [move.submission_id for move in wanted.moves]
        names = {job.cluster for job in wanted.known.values()} & self._clusters.keys()
        if not names:
            raise bug
        for name in names:
            self._hear(self._clusters[name or ""].broken(bug, ids))

    def _carry_out(self, wanted: list[Instruction]) -> float:
        """Begin what is to be done; return when to wake up."""
        wake_at = float("inf")
        for instruction in wanted:
            if isinstance(instruction, WakeUp):
                wake_at = instruction.at
            else:
                self._carriers[type(instruction)](instruction)
        return wake_at

    def _carriers_of(
        self, writer: MoveWriter, publisher: Publisher
    ) -> Mapping[type, Callable[[Any], object]]:
        """Return who carries out which instruction."""
        start, clusters, tidiers = self._tasks.start, self._clusters, self._tidiers
        return {
            instructions.ReadJobs: self._read_jobs,
            instructions.WriteMoves: writer.put,
            instructions.ReadQueue: lambda _: self._changed.set(),
            instructions.PublishSnapshots: lambda wanted: (
                start(publisher.publish()) if wanted.urgent else publisher.publish_soon()
            ),
            instructions.SendAttempt: lambda wanted: start(clusters[wanted.job.cluster].send(wanted)),
            instructions.ObserveAttempts: lambda wanted: start(clusters[wanted.cluster].observe(wanted)),
            instructions.StopAttempt: lambda wanted: start(clusters[wanted.cluster].stop(wanted)),
            instructions.ReadLog: lambda wanted: start(clusters[wanted.job.cluster].read_log(wanted)),
            instructions.ForgetAttempt: lambda wanted: tidiers[wanted.cluster].ended(
                wanted.remote_id, wanted.executor
            ),
            instructions.RefreshUsage: lambda wanted: start(self._context.watch.refresh(wanted.cluster)),
            instructions.SweepCluster: lambda wanted: tidiers[wanted.cluster].sweep_soon(),
        }

    def _read_jobs(self, wanted: instructions.ReadJobs) -> None:
        tell_decisions(wanted.placements)
        self._tasks.start(self._reader.read_jobs(wanted))


def _whose(event: Event) -> tuple[str | None, Sequence[Job]]:
    """Return the cluster that an event is about, if it is about one, and the jobs that it is about."""
    if isinstance(event, events.AttemptsObserved):
        return event.cluster, event.jobs
    if isinstance(event, events.SendEnded):
        return event.job.cluster, (event.job,)
    if isinstance(event, events.LogRead):
        return event.asked.job.cluster, (event.asked.job,)
    return None, ()
