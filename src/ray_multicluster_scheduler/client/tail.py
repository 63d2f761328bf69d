"""Follow a job's log across reconnects and attempts, from its start to the job's end."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress

from ray_multicluster_scheduler.client.current import working_scheduler
from ray_multicluster_scheduler.errors import ClusterError
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.ports import JobStore, RayApi
from ray_multicluster_scheduler.runtime import Scheduler

#: Between two looks while there is no log yet, or after a tail broke off.
PAUSE_S = 0.5
_ON_CLUSTER = frozenset({JobState.SUBMITTED, JobState.RUNNING, JobState.UNREACHABLE})


def tail_job_logs(submission_id: str) -> Iterator[str]:
    """Yield the log of a job in pieces as it grows; ends only when the job has ended.

    A broken connection is taken up again where it broke off; when the job is tried again elsewhere, a line
    says so and the new attempt's log follows. Raises `JobNotFound` at once for an unknown id.
    """
    scheduler = working_scheduler()
    job = scheduler.jobs.find_one(submission_id)
    pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    running = begin_tail(scheduler, job.submission_id, pieces.put)
    running.add_done_callback(lambda _: pieces.put(None))
    return _drain(pieces, running.result, running.cancel)


def begin_tail(scheduler: Scheduler, submission_id: str, put: Callable[[str], None]) -> Future[None]:
    """Hand the log of a job to `put` piece by piece, from the engine's thread, until the job has ended."""
    return scheduler.begin(lambda apis: _Follower(submission_id, scheduler.store, apis, put).run())


def _drain(
    pieces: queue.SimpleQueue[str | None], result: Callable[[], None], cancel: Callable[[], bool]
) -> Iterator[str]:
    try:
        while (piece := pieces.get()) is not None:
            yield piece
        result()
    finally:
        cancel()


class _Follower:
    """Puts the pieces of one job's log out, each once."""

    def __init__(
        self, submission_id: str, store: JobStore, apis: Mapping[str, RayApi], put: Callable[[str], None]
    ) -> None:
        self._submission_id = submission_id
        self._store = store
        self._apis = apis
        self._put = put
        self._attempt = 0
        #: Characters of the current attempt's log that were put out.
        self._offset = 0

    async def run(self) -> None:
        while True:
            job = await asyncio.to_thread(self._store.get, self._submission_id)
            await self._turn_to(job)
            if job.final:
                await self._rest(job)
                return
            if job.state in _ON_CLUSTER:
                await self._tail(job)
            await asyncio.sleep(PAUSE_S)

    async def _turn_to(self, job: Job) -> None:
        """Leave earlier attempts behind; of one that came and went unseen, put out the kept copy."""
        while self._attempt < job.attempt:
            if self._attempt and not self._offset:
                kept = await asyncio.to_thread(self._store.load_log, self._submission_id, self._attempt)
                self._out(kept or "")
            if self._offset:
                self._put(f"\n--- attempt {self._attempt} is over; attempt {self._attempt + 1} follows ---\n")
            self._attempt, self._offset = self._attempt + 1, 0

    async def _tail(self, job: Job) -> None:
        api = self._api_of(job)
        if api is None or job.remote_id is None:
            return
        passed = 0
        try:
            async for piece in api.tail_job_logs(job.remote_id):
                fresh = piece[max(0, self._offset - passed) :]
                passed += len(piece)
                self._out(fresh)
        except ClusterError:
            return  # the job's state tells what is going on; the log is taken up again from the offset

    async def _rest(self, job: Job) -> None:
        """Put out what the tail had not seen when the job ended: from the cluster, else the kept copy."""
        text: str | None = None
        api = self._api_of(job)
        if api is not None and job.remote_id is not None:
            with suppress(ClusterError):
                text = await api.job_logs(job.remote_id)
        if text is None and not self._offset:
            text = await asyncio.to_thread(self._store.load_log, self._submission_id)
        self._out((text or "")[self._offset :])

    def _api_of(self, job: Job) -> RayApi | None:
        """Return how to speak to its cluster; None: it has none, or that is no longer in clusters.yaml."""
        return self._apis.get(job.cluster or "")

    def _out(self, piece: str) -> None:
        if piece:
            self._offset += len(piece)
            self._put(piece)
