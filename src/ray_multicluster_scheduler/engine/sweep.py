"""Sweep: stop what carries our origin on a cluster and was given up. Others' jobs are never touched.

Whether an attempt was given up is read from the store after the cluster has listed its jobs, never from the
leader's memory: every attempt is in the store before it is sent, so even a leader that has lost its lease
without noticing cannot take a job of its successor for a stray. A job that the store does not know at all is
left alone too: then it is the store that is not up to date.

The list of a cluster's jobs is read for this and for others' claims (cluster_health/watch.py), so it is read
rarely. However long it is, only so many of its rows are looked at in one sweep.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from ray_multicluster_scheduler.core.claims import OtherClaims
from ray_multicluster_scheduler.core.lifecycle.attempt_request import JOB, has_origin
from ray_multicluster_scheduler.core.lifecycle.stopping import StopRequests
from ray_multicluster_scheduler.core.live_jobs import LiveJobs
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.errors import ClusterError
from ray_multicluster_scheduler.model.execution import InventoryRow, Sighting
from ray_multicluster_scheduler.model.job import Attempt, Job
from ray_multicluster_scheduler.ports import Executor
from ray_multicluster_scheduler.text.visible import visible

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
    """Stops attempts that came back after they were given up on one cluster."""

    def __init__(
        self, context: EngineContext, cluster: str, executor: Executor, live: LiveJobs, *, epoch: int
    ) -> None:
        self._executor = executor
        self._context = context
        self._live = live
        self._cluster = cluster
        self._epoch = epoch
        self._stops = StopRequests()
        self._told: set[str] = set()

    async def sweep(self) -> Swept:
        """List the cluster's jobs and stop the strays among them; raises `ClusterError`."""
        live = {job.remote_id for job in self._live.on(self._cluster).jobs.values()}
        origin = self._context.store.store_id
        others = OtherClaims(origin)
        inventory = await self._executor.inventory(_Ours(origin, live, others))
        self._context.watch.note_others(self._cluster, others.total)
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
        if attempt.outcome is None:
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
        attempts = [each for each in store.attempts(job_id) if each.remote_id == sighting.remote_id]
        return (store.get(job_id), attempts[0]) if attempts else None

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
            self._context.store.mark_attempt,
            attempt.submission_id,
            attempt.number,
            outcome=SUPERSEDED if replaced else attempt.outcome or "",
            reason=f"attempt {attempt.number} was found alive on {self._cluster!r} after it was given up, "
            f"and is being stopped{overlap}",
            epoch=self._epoch,
            now=self._context.clock.now(),
        )
