"""The engine: whoever holds the lease leads, and the leader runs the loops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from ray_multicluster_scheduler.asyncio_tools import both, cancel_all, repeat, together, wait_for
from ray_multicluster_scheduler.clock import SteadyClock
from ray_multicluster_scheduler.cluster_health.watch import Probed
from ray_multicluster_scheduler.core.flow.quarantine import ThrottleRules
from ray_multicluster_scheduler.core.lifecycle.transitions import without_cluster
from ray_multicluster_scheduler.core.placement.plan import warm_up
from ray_multicluster_scheduler.core.placement.wait_reasons import Wait
from ray_multicluster_scheduler.engine.board import Board
from ray_multicluster_scheduler.engine.cluster_worker import ClusterWorker
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.engine.outlook import Outlook
from ray_multicluster_scheduler.engine.paces import Paces
from ray_multicluster_scheduler.engine.place import Placer
from ray_multicluster_scheduler.engine.prune import FIRST_AFTER_S, Pruner
from ray_multicluster_scheduler.engine.rules import plan_rules, replacement_bucket
from ray_multicluster_scheduler.engine.setups import FailedSetups
from ray_multicluster_scheduler.engine.throttles import Throttles
from ray_multicluster_scheduler.engine.waiting import WaitingJobs
from ray_multicluster_scheduler.errors import LeaseLost, StoreBusy
from ray_multicluster_scheduler.model.job import Job, Lease
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.packages.runtime_env import package_names
from ray_multicluster_scheduler.packages.store import KEEP_S
from ray_multicluster_scheduler.ports import CLOCK_STEP_S

log = logging.getLogger(__name__)

#: The lease is renewed this often within its life.
RENEWALS = 3
#: Who waits for the lease looks this often whether its holder is still there: a killed one rings no bell.
LOOK_AT_LEADER_S = 1.0
#: It rings for each commit of the leader too: not each of them is worth a look.
LEAST_BETWEEN_LOOKS_S = 0.1
#: Between two looks at what others wrote: a hundred who submit in a second cost a few looks, not a hundred.
REST_S = 0.03
#: Nothing happens for this long: look again all the same.
IDLE_PLACE_S = 5.0
#: What was seen of a cluster is published this often at most, unless it can change a decision.
PUBLISH_EVERY_S = 0.5
#: Between two looks at which packages are still needed.
COLLECT_PACKAGES_EVERY_S = 3600.0


class Engine:
    """Runs until `stop` is called. Several engines on one store are safe: one leads, the others wait."""

    def __init__(self, context: EngineContext, *, holder: str) -> None:
        self._context = context
        self._holder = holder
        self._stopping = asyncio.Event()
        self._bell = asyncio.Event()
        #: Set while this engine leads and has looked at the jobs of every cluster.
        self.caught_up = asyncio.Event()
        self._leadership: Leadership | None = None

    async def waits(self) -> tuple[Wait, ...] | None:
        """Say why the jobs in the queue wait; None: another one leads, and knows."""
        leadership = self._leadership
        return None if leadership is None else await leadership.placer.waits()

    def ring(self) -> None:
        """Say that the store has changed; call it on the engine's loop."""
        self._bell.set()

    def stop(self) -> None:
        """Ask the engine to end; jobs go on, and another engine may take over at once."""
        self._stopping.set()
        self._bell.set()

    async def run(self) -> None:
        """Wait for the lease, lead while it holds, begin again.

        A store that is locked or full ends nothing but this turn: jobs go on, and so does the next turn.
        """
        ttl_s = self._context.settings.lease_ttl_s
        while not self._stopping.is_set():
            self._bell.clear()
            try:
                led = await self._turn(ttl_s)
            except StoreBusy as problem:
                log.error("the job store cannot be written now: %s", problem)  # noqa: TRY400
                led = False
            if not led:
                await wait_for(self._stopping, LEAST_BETWEEN_LOOKS_S)
                await wait_for(self._bell, min(LOOK_AT_LEADER_S, ttl_s / RENEWALS))

    async def _turn(self, ttl_s: float) -> bool:
        """Lead if the lease can be had; tell whether it could."""
        context = self._context
        # A look before the try: it keeps nobody from writing, and many may wait.
        leader = await context.offload(context.store.leader, now=context.clock.now())
        if leader is not None and leader.holder != self._holder:
            return False
        lease = await context.offload(
            context.store.acquire_lease, self._holder, ttl_s=ttl_s, now=context.clock.now()
        )
        if lease is not None:
            await self._lead(lease)
        return lease is not None

    async def _lead(self, lease: Lease) -> None:
        log.info("leading as %s (epoch %d)", lease.holder, lease.epoch)
        leader = self._leadership = Leadership(self._context, lease, self._bell)
        leadership = asyncio.create_task(leader.run())
        catching_up = asyncio.create_task(self._catch_up(leader))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({leadership, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if leadership.done():
                leadership.result()
        except LeaseLost:
            log.warning("another scheduler leads now, not %s (epoch %d)", lease.holder, lease.epoch)
        except ClockWasSet as problem:
            log.warning("the clock was set; leading anew (by %.1f s)", problem.by_s)
        finally:
            await cancel_all([leadership, stopping, catching_up])
            self.caught_up.clear()
            self._leadership = None
            await self._context.offload(self._context.store.release_lease, lease)

    async def _catch_up(self, leader: Leadership) -> None:
        for worker in leader.workers.values():
            await worker.looked.wait()
        self.caught_up.set()


class ClockWasSet(Exception):
    """Time has jumped: this leadership ends, and the next one begins with the times of all jobs moved."""

    def __init__(self, by_s: float) -> None:
        super().__init__(f"the clock was set by {by_s:+.1f} s")
        self.by_s = by_s


class Leadership:
    """The loops of one leader, from taking the lease to losing it.

    Its time does not jump: jobs that wait or run must not be ended by somebody who sets the clock.
    """

    def __init__(self, context: EngineContext, lease: Lease, bell: asyncio.Event) -> None:
        self._clock = SteadyClock(context.clock)
        context = replace(context, clock=self._clock)
        self._context = context
        self._bell = bell
        settings = context.settings
        self.board = Board(context, lease, moved=self._on_moved)
        self._publish = asyncio.Event()
        self._setups = FailedSetups(context, publish=self._publish_snapshots)
        self._throttles = Throttles(
            context, self.board, self._setups, ThrottleRules(), replacement_bucket(settings)
        )
        self._waiting = WaitingJobs(context)
        clusters = [spec.name for spec in context.config.clusters]
        self._paces = Paces(clusters, context.clock, most=settings.max_starts_in_flight)
        self._outlook = Outlook(self.board, self._throttles, self._paces)
        self.placer = Placer(
            context, self.board, self._waiting, self._outlook, self._paces, plan_rules(settings)
        )
        self._plan = asyncio.Event()
        self._place_pause_s = IDLE_PLACE_S
        self._published_at = float("-inf")
        self._publishes_soon = False
        self._pokes: set[asyncio.Task[object]] = set()
        self.workers = {
            spec.name: ClusterWorker(context, self.board, spec, self._throttles, self._setups)
            for spec in context.config.clusters
        }

    async def run(self) -> None:
        """Lead until a loop fails, the lease is lost, or the task is cancelled."""
        # A long queue takes longer to read than a lease lasts.
        await together([self._renew_lease(), self._lead()])

    async def _lead(self) -> None:
        context, clock = self._context, self._clock
        moved_by_s = await context.offload(
            context.store.settle_clock,
            boot=clock.boot(),
            offset=clock.offset,
            epoch=self.board.lease.epoch,
            now=clock.now(),
        )
        if moved_by_s:
            log.warning("the clock was set; times of open jobs are moved with it by %.1f s", moved_by_s)
        await self.board.load()
        await self._setups.load()
        await self._waiting.refresh()
        unsubscribe = context.watch.subscribe(self._on_probe)
        context.watch.expect_first_look()
        try:
            await together(
                [
                    self._watch(),
                    repeat(self._refresh, self._bell, lambda: IDLE_PLACE_S, rest_s=REST_S),
                    repeat(self._place, self._plan, lambda: self._place_pause_s),
                    repeat(self._publish_snapshots, self._publish, lambda: context.settings.probe_interval_s),
                    self._collect_packages(),
                    Pruner(context, self.board).run(),
                    *(worker.run() for worker in self.workers.values()),
                ]
            )
        finally:
            unsubscribe()
            await cancel_all(self._pokes)
            await self.board.close()

    async def _watch(self) -> None:
        await both(self._context.watch.first_look(), asyncio.to_thread(warm_up))
        self._plan.set()  # from here on nothing waits for those that did not answer
        self._publish.set()
        await self._context.watch.run()

    async def _renew_lease(self) -> None:
        context, ttl_s = self._context, self._context.settings.lease_ttl_s
        while True:
            await asyncio.sleep(ttl_s / RENEWALS)
            if abs(by_s := self._clock.step_s()) >= CLOCK_STEP_S:
                raise ClockWasSet(by_s)
            now, lease = context.clock.now(), self.board.lease
            self.board.lease = await context.offload(context.store.renew_lease, lease, ttl_s=ttl_s, now=now)

    async def _refresh(self) -> None:
        """Take in what others wrote: new jobs and stop requests."""
        changed = await self.board.refresh()
        await self._waiting.refresh()
        self._plan.set()
        for cluster in changed & self.workers.keys():
            self.workers[cluster].look_now()
        homeless = [job for job in self.board.all() if job.cluster not in self.workers]
        await self.board.apply([moved for job in homeless if (moved := without_cluster(job))])

    async def _place(self) -> None:
        """Place what can be placed, and be back when the next retry, time-out or end of patience is due."""
        await self.placer.step()
        context, now = self._context, self._context.clock.now()
        due = (await context.offload(context.store.next_due, now=now), self.placer.patience_ends(now=now))
        self._place_pause_s = min([IDLE_PLACE_S, *(at - now for at in due if at is not None)])

    async def _publish_snapshots(self) -> None:
        context = self._context
        self._published_at, self._publishes_soon = context.clock.monotonic(), False
        snapshots = list(self._outlook.snapshots().values())
        await context.offload(context.store.save_snapshots, snapshots, epoch=self.board.lease.epoch)

    async def _collect_packages(self) -> None:
        """Remove packages that no open job has needed for a while, from time to time.

        Not on the store's thread: whoever holds the lock of the packages must not keep the lease waiting.
        """
        packages = self._context.packages
        await asyncio.sleep(FIRST_AFTER_S)
        while True:
            try:
                if await asyncio.to_thread(packages.unused, for_s=COLLECT_PACKAGES_EVERY_S):
                    keep = await self._needed_packages()
                    await asyncio.to_thread(packages.collect, keep, older_than_s=KEEP_S)
            except OSError as problem:
                log.warning("old packages cannot be removed now: %s", problem)
            await asyncio.sleep(COLLECT_PACKAGES_EVERY_S)

    async def _needed_packages(self) -> set[str]:
        """Return the packages of all open jobs, and those of the clusters."""
        envs = [spec.runtime_env for spec in self._context.config.clusters]
        envs += [job.spec.runtime_env for job in self.board.all()]
        needed = {name for env in envs for name in package_names(env)}
        async for job in self._waiting.whole():
            needed.update(package_names(job.spec.runtime_env))
        # Whoever left the queue while it was read is on a cluster by now.
        needed.update(name for job in self.board.all() for name in package_names(job.spec.runtime_env))
        return needed

    def _on_probe(self, probed: Probed) -> None:
        worker = self.workers[probed.snapshot.name]
        if probed.changed:
            worker.changed()
        self._publish_in_time(urgent=probed.changed)
        self._plan.set()

    def _publish_in_time(self, *, urgent: bool) -> None:
        if urgent or self._context.clock.monotonic() - self._published_at >= PUBLISH_EVERY_S:
            self._publish.set()
        elif not self._publishes_soon:
            self._publishes_soon = True
            asyncio.get_running_loop().call_later(PUBLISH_EVERY_S, self._publish.set)

    def _on_moved(self, jobs: Sequence[Job]) -> None:
        """Wake whoever has something to do now."""
        self._waiting.moved(jobs)
        self._paces.moved(jobs)
        for job in jobs:
            if job.state is JobState.PLACED and job.cluster:
                self.workers[job.cluster].placed_now(job, self.placer.request_of(job))
        for cluster in {job.cluster for job in jobs if job.final and job.cluster} & self.workers.keys():
            self._poke(cluster)
        self._publish_in_time(urgent=False)  # the pace and the warm environments
        self._plan.set()

    def _poke(self, cluster: str) -> None:
        """Ask a cluster what it uses now, because that has just changed."""
        poke = asyncio.create_task(self._context.watch.refresh(cluster))
        self._pokes.add(poke)
        poke.add_done_callback(self._pokes.discard)
