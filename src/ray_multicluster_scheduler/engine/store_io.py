"""The leader's way to the store: reading what others wrote, writing and publishing what was decided."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from ray_multicluster_scheduler.asyncio_tools import repeat
from ray_multicluster_scheduler.core.events import (
    DrainsRead,
    Event,
    JobsAccepted,
    JobsBlocked,
    JobsRead,
    MovesWritten,
    StopsRequested,
)
from ray_multicluster_scheduler.core.instructions import ReadJobs, WriteMoves
from ray_multicluster_scheduler.core.placer import PLACE
from ray_multicluster_scheduler.core.supervisor import SEEN
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot
from ray_multicluster_scheduler.model.decision import Placement, Wait
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.text import visible

# Reads what others wrote: new jobs, stop requests, jobs that must end, drained clusters.


#: Jobs that are read at once: a queue of a million must not be in memory as a whole.
PAGE = 5_000
#: Jobs, and what each still waits for.
_Page = tuple[tuple[Job, tuple[str, ...]], ...]


class StoreReader:
    """Others only add jobs, with larger numbers than all before, and ask for stops. `hear` gets events."""

    def __init__(self, context: EngineContext, hear: Callable[[Event], None]) -> None:
        self._context = context
        self._hear = hear
        self._last_seq = 0

    async def read(self) -> None:
        """Read all that is new."""
        context, store = self._context, self._context.store
        self._hear(StopsRequested(jobs=await context.offload(store.queue.stopping)))
        async for page in self._pages(after=self._last_seq):
            await self._read_drains()  # before the jobs: a cluster may be drained because of them
            self._hear(JobsAccepted(jobs=page))
            self._last_seq = page[-1][0].seq
        blocked = await context.offload(store.queue.blocked, now=context.clock.now())
        if blocked:
            self._hear(JobsBlocked(jobs=blocked))
        await self._read_drains()

    async def read_jobs(self, wanted: ReadJobs) -> None:
        """Read whole jobs; those that wait no longer are left out."""
        context = self._context
        if wanted.placements:
            context.crash_point("place:decided")
        jobs = await context.offload(context.store.jobs.get_many, wanted.submission_ids)
        if wanted.placements:
            await self._read_drains()  # once `drain` has returned, nothing more is placed there
        waiting = {each: job for each, job in jobs.items() if job.state is JobState.QUEUED}
        self._hear(JobsRead(asked=wanted, jobs=waiting))

    async def _read_drains(self) -> None:
        self._hear(DrainsRead(drains=await self._context.offload(self._context.store.clusters.drained)))

    async def whole_queue(self) -> AsyncIterator[Job]:
        """Read all waiting jobs again, as they are in the store."""
        async for page in self._pages(after=0):
            for job, _ in page:
                yield job

    async def _pages(self, *, after: int) -> AsyncIterator[_Page]:
        context = self._context
        while page := await context.offload(context.store.queue.arrivals, after=after, limit=PAGE):
            yield page
            if len(page) < PAGE:
                return
            after = page[-1][0].seq


# What the log says of moves and decisions. The data are in the message: `basicConfig` shows nothing else.


log = logging.getLogger(__name__)

#: States between the placement and the end are logged at DEBUG.
_DETAILS = frozenset({JobState.SUBMITTED, JobState.RUNNING})


def tell_moves(jobs: Iterable[Job]) -> None:
    """Say where jobs are now, and why: at INFO where they went and how they ended."""
    if not log.isEnabledFor(logging.INFO):
        return
    for job in jobs:
        where = f" on {job.cluster!r}" if job.cluster else ""
        log.log(
            logging.DEBUG if job.state in _DETAILS else logging.INFO,
            "job %s (%s): %s%s: %s",
            job.submission_id,
            visible(job.spec.name or "no name"),
            job.state.value,
            where,
            visible(job.reason),
        )


def tell_decisions(placements: Iterable[Placement]) -> None:
    """Say at DEBUG how each cluster was judged for a job that got a place."""
    if not log.isEnabledFor(logging.DEBUG):
        return
    for placed in placements:
        scores = ", ".join(f"{name} {score.total:.2f}" for name, score in placed.scores.items())
        refused = "; ".join(f"not {name!r}: {why.sentence}" for name, why in placed.refusals.items())
        log.debug(
            "job %s goes to %r: %s; scores: %s%s",
            placed.submission_id,
            placed.cluster,
            placed.sentence,
            scores,
            f"; {visible(refused)}" if refused else "",
        )


# Writes moves to the store: whatever is wanted while one commit is under way goes into the next.


#: What is wanted within this time shares a commit: a commit of a few moves costs as much as one of many.
GATHER_S = 0.003

_Waiter = asyncio.Future[Sequence[Job]]


class MoveWriter:
    """One commit at a time. `epoch` is that of the lease; `written` and `failed` hear the results."""

    def __init__(
        self,
        context: EngineContext,
        *,
        epoch: int,
        written: Callable[[MovesWritten], None],
        failed: Callable[[WriteMoves, Exception], None],
    ) -> None:
        self._context = context
        self._epoch = epoch
        self._written = written
        self._failed = failed
        self._wanted: list[tuple[WriteMoves, _Waiter | None]] = []
        self._wake = asyncio.Event()

    def put(self, wanted: WriteMoves) -> None:
        """Write moves as soon as possible."""
        self._wanted.append((wanted, None))
        self._wake.set()

    async def write(self, wanted: WriteMoves) -> None:
        """Write moves and wait until they are on disk."""
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        self._wanted.append((wanted, waiter))
        self._wake.set()
        await waiter

    async def run(self) -> None:
        """Write until cancelled. A store that cannot be written, and a lost lease, end it."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(GATHER_S)  # the moves of one look come one after the other
            self._wake.clear()
            batch, self._wanted = self._wanted, []
            writing = asyncio.ensure_future(self._write_all(batch))
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:
                # The store's thread goes on, and the next leader must not overtake it; it may fail.
                await asyncio.gather(writing, return_exceptions=True)
                raise

    async def _write_all(self, batch: Sequence[tuple[WriteMoves, _Waiter | None]]) -> None:
        try:
            moved = await self._apply([wanted for wanted, _ in batch])
        except StoreError:
            raise
        except Exception as bug:  # noqa: BLE001 - of one of them: told to whoever asked for it
            if len(batch) > 1:
                for one in batch:
                    await self._write_all([one])
                return
            self._failed(batch[0][0], bug)
            _settle_all(batch, ())
            return
        self._written(MovesWritten(asked=[wanted for wanted, _ in batch], moved=moved))
        _settle_all(batch, moved)

    async def _apply(self, batch: Sequence[WriteMoves]) -> tuple[Job, ...]:
        context = self._context
        for wanted in batch:
            if wanted.occasion == SEEN:
                for move in wanted.moves:
                    context.crash_point(f"seen:{move.new.value}")
        moved = await context.offload(
            context.store.jobs.apply,
            [move for wanted in batch for move in wanted.moves],
            epoch=self._epoch,
            now=context.clock.now(),
            logs=[
                (wanted.moves[0].submission_id, wanted.moves[0].attempt, wanted.log)
                for wanted in batch
                if wanted.log is not None
            ],
            results=[
                (wanted.moves[0].submission_id, wanted.moves[0].attempt, wanted.result)
                for wanted in batch
                if wanted.result is not None
            ],
            known={job_id: job for wanted in batch for job_id, job in wanted.known.items()},
        )
        if any(wanted.occasion == PLACE for wanted in batch):
            context.crash_point("place:written")
        tell_moves(moved)
        return moved


def _settle_all(batch: Sequence[tuple[WriteMoves, _Waiter | None]], moved: Sequence[Job]) -> None:
    for _, waiter in batch:
        if waiter is not None and not waiter.done():
            waiter.set_result(moved)


# Publishes by what the leader decides, so that `explain` and the dry run decide alike in any process.


#: What was seen of a cluster is published this often at most, unless it can change a decision.
PUBLISH_EVERY_S = 0.5
#: Why jobs wait is published this often at most,
WAITS_EVERY_S = 2.0
#: and a pass over thousands of kinds of jobs, which takes seconds, so many times more seldom than it takes.
WAITS_TIMES = 10.0


class Publisher:
    """Writes snapshots to the store: at once where that is needed, else in a while together."""

    def __init__(
        self, context: EngineContext, snapshots: Callable[[], Sequence[ClusterSnapshot]], *, epoch: int
    ) -> None:
        self._context = context
        self._snapshots = snapshots
        self._epoch = epoch
        self._wake = asyncio.Event()
        self._published_at = float("-inf")
        self._is_soon = False

    def publish_soon(self) -> None:
        """Publish what is known, but not too often."""
        if self._context.clock.monotonic() - self._published_at >= PUBLISH_EVERY_S:
            self._wake.set()
        elif not self._is_soon:
            self._is_soon = True
            asyncio.get_running_loop().call_later(PUBLISH_EVERY_S, self._wake.set)

    async def run(self) -> None:
        """Publish until cancelled."""
        await repeat(self.publish, self._wake, lambda: self._context.settings.probe_interval_s)

    async def publish_waits(self, waits: Callable[[], Callable[[], tuple[Wait, ...]]]) -> None:
        """Publish why jobs wait until cancelled; `waits` returns what is called off the loop."""
        context, last = self._context, None
        while True:
            began = context.clock.monotonic()
            found = await asyncio.to_thread(waits())
            if found != last:
                await context.offload(context.store.clusters.publish_waits, found, epoch=self._epoch)
                last = found
            took_s = context.clock.monotonic() - began
            await asyncio.sleep(max(WAITS_EVERY_S, WAITS_TIMES * took_s))

    async def publish(self) -> None:
        """Publish what is known now: before anything that is given to the store's thread after this."""
        context = self._context
        self._published_at, self._is_soon = context.clock.monotonic(), False
        await context.offload(context.store.clusters.save_snapshots, self._snapshots(), epoch=self._epoch)
