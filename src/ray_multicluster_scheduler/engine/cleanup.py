"""What the leader removes: abandoned attempts and ended jobs on clusters, old history and packages here."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import islice

from ray_multicluster_scheduler.asyncio_tools import repeat, together
from ray_multicluster_scheduler.cluster_health.watch import Isolation
from ray_multicluster_scheduler.core.lifecycle.attempt_request import JOB, ORIGIN, has_origin
from ray_multicluster_scheduler.core.lifecycle.stopping import StopRequests
from ray_multicluster_scheduler.core.live_jobs import LiveJobs, OtherClaims
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.engine.store_io import StoreReader
from ray_multicluster_scheduler.errors import ClusterError, StoreError
from ray_multicluster_scheduler.executors.contract import Executor
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.execution import InventoryRow, Sighting
from ray_multicluster_scheduler.model.job import Attempt, Job
from ray_multicluster_scheduler.packages.runtime_env import package_names
from ray_multicluster_scheduler.packages.store import KEEP_S
from ray_multicluster_scheduler.service.jobs import STEP_JOBS, keep_rules
from ray_multicluster_scheduler.text import visible

# Sweep: stop what carries our origin on a cluster and was given up. Others' jobs are never touched.
#
# Whether an attempt was given up is read from the store after the cluster has listed its jobs, never from
# the leader's memory: every attempt is in the store before it is sent, so even a leader that has lost its
# lease without noticing cannot take a job of its successor for a stray. A job that the store does not know
# at all is left alone too: then it is the store that is not up to date.
#
# The list of a cluster's jobs is read for this and for others' claims (cluster_health/watch.py), so it is
# read rarely. However long it is, only so many of its rows are looked at in one sweep.


log = logging.getLogger(__name__)

#: How an attempt that came back alive after it was replaced is recorded.
SUPERSEDED = "SUPERSEDED"
#: Rows of one kind that one sweep takes out of a list.
MOST_ROWS = 1_000
#: Jobs that one sweep asks the store about, because all clusters share the store.
MOST_EXAMINED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep has found, by remote id."""

    #: Open jobs of ours that are not known to live here.
    suspects: frozenset[str]
    #: Ended jobs of ours, oldest first.
    ended: tuple[str, ...]


class _Ours:
    """Chooses our own rows while a list passes by: those that have ended, and those that nobody knows."""

    def __init__(self, origin: str, live: Collection[str | None], others: OtherClaims) -> None:
        self._others = others
        self._origin = origin
        self._live = live
        self._seen = {True: 0, False: 0}

    def __call__(self, row: InventoryRow) -> bool:
        self._others.see(row)
        if row.status is None or row.is_driver or not has_origin(row, self._origin):
            return False
        ended = row.status.final
        if not ended and row.remote_id in self._live:
            return False
        self._seen[ended] += 1
        return self._seen[ended] <= MOST_ROWS


class Sweeper:
    """Stops attempts of one executor that came back after they were given up on one cluster."""

    def __init__(
        self, context: EngineContext, cluster: str, executor: str, live: LiveJobs, *, epoch: int
    ) -> None:
        self._name = executor
        self._executor = context.executor(cluster, executor)
        self._context = context
        self._live = live
        self._cluster = cluster
        self._epoch = epoch
        self._stops = StopRequests()
        self._told: set[str] = set()

    async def sweep(self, others: OtherClaims) -> Swept:
        """List the attempts there and stop the strays among them; raises `ClusterError`."""
        live = {job.remote_id for job in self._live.on(self._cluster).jobs.values()}
        origin = self._context.store.store_id
        inventory = await self._executor.inventory(_Ours(origin, live, others))
        ended = [each for each in inventory.sightings if each.status.final]
        suspects = {each.remote_id: each for each in inventory.sightings if not each.status.final}
        self._told &= suspects.keys()
        self._stops.keep_only(suspects)
        # Those that were told about come last: a crowd of them must not hide another one for ever.
        in_turn = sorted(suspects, key=lambda name: name in self._told)
        for name in in_turn[:MOST_EXAMINED]:
            await self._examine(suspects[name])
        return Swept(
            suspects=frozenset(suspects),
            ended=tuple(each.remote_id for each in sorted(ended, key=lambda each: each.ended_at or 0.0)),
        )

    async def _examine(self, sighting: Sighting) -> None:
        found = await self._context.offload(self._find, sighting)
        if found is None:
            self._say_unknown(sighting)
            return
        job, attempt = found
        if attempt.outcome is None or attempt.executor != self._name:
            return
        self._context.crash_point("sweep:before-stop")
        if await self._stop(sighting.remote_id) and sighting.remote_id not in self._told:
            await self._record(job, attempt)
            self._told.add(sighting.remote_id)

    async def _stop(self, remote_id: str) -> bool:
        """Ask the cluster to stop an attempt; tell whether it does so because of this call."""
        if not self._stops.ask(remote_id, now=self._context.clock.monotonic()):
            return False
        try:
            return await self._executor.stop(remote_id)
        except ClusterError as error:
            log.warning("stop of %s not delivered: %s", remote_id, visible(str(error)))
            return False

    def _find(self, sighting: Sighting) -> tuple[Job, Attempt] | None:
        """Read the attempt from the store as it is now."""
        store, job_id = self._context.store, sighting.metadata.get(JOB, "")
        attempts = [each for each in store.history.attempts(job_id) if each.remote_id == sighting.remote_id]
        return (store.jobs.get(job_id), attempts[0]) if attempts else None

    def _say_unknown(self, sighting: Sighting) -> None:
        if sighting.remote_id not in self._told:
            self._told.add(sighting.remote_id)
            log.warning(
                "job %s on %r carries our origin, but the store has no such attempt; it is left alone",
                visible(sighting.remote_id),
                self._cluster,
            )

    async def _record(self, job: Job, attempt: Attempt) -> None:
        """Write down that a former attempt was alive after all; its result is never the job's result."""
        replaced = attempt.number < job.attempt
        overlap = f"; it may have run beside attempt {job.attempt}" if replaced else ""
        await self._context.offload(
            self._context.store.history.mark_attempt,
            attempt.submission_id,
            attempt.number,
            outcome=SUPERSEDED if replaced else attempt.outcome or "",
            reason=f"attempt {attempt.number} was found alive on {self._cluster!r} after it was given up, "
            f"and is being stopped{overlap}",
            epoch=self._epoch,
            now=self._context.clock.now(),
        )


# Deleting ended jobs of ours on one cluster, so that it does not remember more and more of them.
#
# Never before the result is on our own disk: the store is asked for each whether its end and its log are
# kept. The newest ones stay, for whoever looks into Ray's own dashboard. Others' jobs are never touched. A
# delete that fails does no harm: a later sweep finds the job again.


#: Asked of the store in one go, and deleted at the same time.
BATCH = 100
AT_ONCE = 4
#: Ids that we have made: nobody else can have chosen one after the cluster was restarted.
_MADE_HERE = re.compile(r"sub_[0-9a-f]{32}(--r[0-9]+)?")


class Forgetter:
    """What ended on one cluster, oldest first, by remote id."""

    def __init__(self, context: EngineContext, cluster: str) -> None:
        self._context = context
        self._cluster = cluster
        #: The executor of each.
        self._ended: dict[str, str] = {}

    @property
    def is_due(self) -> bool:
        """Tell whether there are more than shall stay."""
        return len(self._ended) > self._context.settings.ended_jobs_on_cluster

    def ended(self, remote_id: str, executor: str) -> None:
        """Take note of the end of a job whose result was just written."""
        self._ended[remote_id] = executor

    def found(self, remote_ids: Iterable[str], executor: str) -> None:
        """Take note of ended jobs that the cluster has listed, oldest first: earlier leaders left them."""
        self._ended = {**dict.fromkeys(remote_ids, executor), **self._ended}

    async def step(self) -> None:
        """Delete some of those that are too many."""
        excess = len(self._ended) - self._context.settings.ended_jobs_on_cluster
        oldest = dict(islice(self._ended.items(), max(0, min(excess, BATCH))))
        if not oldest:
            return
        kept = await self._context.offload(self._context.store.history.kept_ends, list(oldest))
        for remote_id in oldest:
            del self._ended[remote_id]
        queue = iter([(remote_id, name) for remote_id, name in oldest.items() if remote_id in kept])
        await together(self._delete_all(queue) for _ in range(AT_ONCE))

    async def _delete_all(self, queue: Iterable[tuple[str, str]]) -> None:
        for remote_id, name in queue:
            executor = self._context.executor(self._cluster, name)
            try:
                if _MADE_HERE.fullmatch(remote_id) or await self._is_ours(executor, remote_id):
                    await executor.delete(remote_id)
            except ClusterError as error:
                log.debug("%s on %r not deleted: %s", remote_id, self._cluster, error)

    async def _is_ours(self, executor: Executor, remote_id: str) -> bool:
        sighting = await executor.get(remote_id)
        return sighting.metadata.get(ORIGIN) == self._context.store.store_id


# Tidies up on one cluster: stops attempts that were given up, and deletes ended ones that are kept here.


#: The cluster's whole job list is read once in so many probes, more often while there are strays or it cannot
#: be read; and never for more than a twentieth of the time.
SWEEP_PROBES = 12
#: A list that cannot be read is tried again so often at the pace of probes: after that it may be too long.
QUICK_SWEEPS = 3
SWEEP_REST = 20
#: Between two rounds of deletes.
FORGET_PAUSE_S = 0.2


class Tidier:
    """The loop that tidies up on one cluster. Jobs do not depend on it."""

    def __init__(self, context: EngineContext, cluster: str, live: LiveJobs, *, epoch: int) -> None:
        self._context = context
        self._cluster = cluster
        self._sweepers = {
            name: Sweeper(context, cluster, name, live, epoch=epoch)
            for name in context.executors.registry.capabilities()
        }
        self._forgetter = Forgetter(context, cluster)
        #: Monotonic time of the next sweep.
        self._sweep_at = float("-inf")
        #: Sweeps that failed, one after the other.
        self._unread = 0
        self._wake = asyncio.Event()

    def sweep_soon(self) -> None:
        """Look for strays as soon as the cluster answers."""
        self._sweep_at, self._unread = float("-inf"), 0
        self._wake.set()

    def ended(self, remote_id: str, executor: str) -> None:
        """Take note of the end of an attempt whose result was just written."""
        self._forgetter.ended(remote_id, executor)
        if self._forgetter.is_due:
            self._wake.set()

    async def run(self) -> None:
        """Tidy up until cancelled."""
        isolation = Isolation(self._cluster, "tidying up there", lambda _: None)
        await repeat(
            lambda: isolation.run(self._step), self._wake, lambda: isolation.pause_s(self._pause_s())
        )

    async def _step(self) -> None:
        """Sweep when it is time, and delete ended attempts that the cluster need not remember any longer."""
        clock, seen = self._context.clock, self._context.watch.snapshot(self._cluster)
        if seen.health is Health.HEALTHY and clock.monotonic() >= self._sweep_at:
            self._sweep_at = float("inf")
            pause_s = await self._sweep()
            # A sweep that was requested meanwhile must still run.
            self._sweep_at = min(self._sweep_at, clock.monotonic() + pause_s)
        await self._forgetter.step()

    async def _sweep(self) -> float:
        """Look for strays; return how long to wait before the next sweep."""
        interval_s, began_at = self._context.settings.probe_interval_s, self._context.clock.monotonic()
        others = OtherClaims(self._context.store.store_id)
        try:
            swept = {name: await sweeper.sweep(others) for name, sweeper in self._sweepers.items()}
        except ClusterError:  # what is wrong with it is for the probes to tell
            self._unread += 1
            return interval_s if self._unread <= QUICK_SWEEPS else SWEEP_PROBES * interval_s
        self._unread = 0
        self._context.watch.note_others(self._cluster, others.total)
        for name, each in swept.items():
            self._forgetter.found(each.ended, name)
        has_suspects = any(each.suspects for each in swept.values())
        rest_s = SWEEP_REST * (self._context.clock.monotonic() - began_at)
        return max(rest_s, interval_s if has_suspects else SWEEP_PROBES * interval_s)

    def _pause_s(self) -> float:
        if self._forgetter.is_due:
            return FORGET_PAUSE_S
        left_s = self._sweep_at - self._context.clock.monotonic()
        return max(left_s, self._context.settings.probe_interval_s)


#: A scheduler begins with its jobs.
FIRST_AFTER_S = 3.0
EVERY_S = 600.0
#: Given back in one transaction.
STEP_BYTES = 4 * 2**20
#: Pauses between two steps: in proportion to what the step took, so that others have the store to themselves.
PAUSE_SHARE = 9.0
SHORTEST_PAUSE_S = 0.1
#: Between two looks at which packages are still needed.
COLLECT_PACKAGES_EVERY_S = 3600.0


class Housekeeper:
    """Runs while this process leads; `live` returns the jobs that are on clusters."""

    def __init__(
        self, context: EngineContext, reader: StoreReader, live: Callable[[], Iterable[Job]], *, epoch: int
    ) -> None:
        self._context = context
        self._reader = reader
        self._live = live
        self._epoch = epoch
        self._keep = keep_rules(context.settings)

    async def run(self) -> None:
        """Remove what need not be kept, again and again; cancel to end."""
        await asyncio.sleep(FIRST_AFTER_S)
        await together([self._prune_again_and_again(), self._collect_packages()])

    # -- history

    async def _prune_again_and_again(self) -> None:
        while True:
            await self.prune()
            await asyncio.sleep(EVERY_S)

    async def prune(self) -> None:
        """Remove all history that need not be kept now."""
        jobs = 0
        more = True
        while more:
            began_at = self._context.clock.monotonic()
            removed, more = await self._prune_some()
            jobs += removed
            if more:
                took_s = self._context.clock.monotonic() - began_at
                await asyncio.sleep(max(SHORTEST_PAUSE_S, PAUSE_SHARE * took_s))
        if jobs:
            log.info("history pruned: %d job(s) removed", jobs)

    async def _prune_some(self) -> tuple[int, bool]:
        """Remove something, or else give space back; return how many jobs went, and whether to go on."""
        context, store = self._context, self._context.store
        now = context.clock.now()
        pruned = await context.offload(
            store.retention.prune, self._keep, now=now, limit=STEP_JOBS, epoch=self._epoch
        )
        if pruned.more:
            return pruned.jobs, True
        return 0, await context.offload(store.retention.shrink, most_bytes=STEP_BYTES)

    # -- packages

    async def _collect_packages(self) -> None:
        """Remove packages that no open job has needed for a while.

        Not on the store's thread: whoever holds the lock of the packages must not keep the lease waiting.
        """
        packages = self._context.packages
        while True:
            try:
                if await asyncio.to_thread(packages.may_collect, for_s=COLLECT_PACKAGES_EVERY_S):
                    keep = await self._needed_packages()
                    await asyncio.to_thread(packages.collect, keep, older_than_s=KEEP_S)
            except (OSError, StoreError) as problem:
                log.warning("old packages cannot be removed now: %s", problem)
            await asyncio.sleep(COLLECT_PACKAGES_EVERY_S)

    async def _needed_packages(self) -> set[str]:
        """Return the packages of all open jobs, and those of the clusters."""
        needed = {name for spec in self._context.config.clusters for name in package_names(spec.runtime_env)}
        needed |= self._packages_of(self._live())
        async for job in self._reader.whole_queue():
            needed.update(package_names(job.spec.runtime_env))
        # Jobs that left the queue while it was read are on a cluster by now.
        return needed | self._packages_of(self._live())

    @staticmethod
    def _packages_of(jobs: Iterable[Job]) -> set[str]:
        return {name for job in jobs for name in package_names(job.spec.runtime_env)}
