"""Follow a job's log across reconnects and attempts, from its start to the job's end."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import aclosing, suppress
from typing import Any

from ray_multicluster_scheduler.errors import ClusterError, JobNotFound
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.kept_log import missing_bytes, without_note
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.ports import Connections, Executor
from ray_multicluster_scheduler.service.event_hub import EventHub
from ray_multicluster_scheduler.service.log_pipe import LogPipe
from ray_multicluster_scheduler.service.shared_log import SharedLogs
from ray_multicluster_scheduler.store_ports import JobStore

#: Pause before a broken tail is resumed.
PAUSE_S = 0.5
#: Text that is already available is yielded in pieces of about this size.
PIECE_CHARS = 2**16
#: Its cluster has, or should have, a log of it.
ON_CLUSTER = frozenset({JobState.SUBMITTED, JobState.RUNNING, JobState.UNREACHABLE})

#: Runs a coroutine that talks to clusters, on the loop that has connections to them.
Reach = Callable[[Callable[[Connections], Coroutine[Any, Any, Any]]], "Future[Any]"]


def next_attempt(number: int) -> str:
    """Return the line between the logs of two attempts."""
    return f"\n--- attempt {number} is over; attempt {number + 1} follows ---\n"


class Tails:
    """Follows logs for any number of readers; those of one log share a connection to its cluster."""

    def __init__(self, reach: Reach, hub: EventHub, store: JobStore) -> None:
        self._reach = reach
        self._hub = hub
        self._store = store
        self._logs = SharedLogs()

    def tail(self, submission_id: str) -> Iterator[str]:
        """Yield the log of a job in pieces as it grows; ends only when the job has ended."""
        pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        pipe = LogPipe(pieces.put)
        running = self._follow(submission_id, pipe)
        running.add_done_callback(lambda _: pieces.put(None))
        try:
            while (piece := pieces.get()) is not None:
                pipe.taken(piece)
                yield piece
            running.result()
        finally:
            running.cancel()

    async def tail_async(self, submission_id: str) -> AsyncGenerator[str, None]:
        """Like the blocking version, for asyncio: no thread waits."""
        loop, pieces = asyncio.get_running_loop(), asyncio.Queue[str | None]()

        def put(piece: str | None) -> None:
            with suppress(RuntimeError):  # the loop was closed meanwhile, so there is no reader
                loop.call_soon_threadsafe(pieces.put_nowait, piece)

        pipe = LogPipe(put)
        running = self._follow(submission_id, pipe)
        running.add_done_callback(lambda _: put(None))
        try:
            while text := await _all_that_waits(pieces):
                pipe.taken(text)
                yield text
            running.result()
        finally:
            running.cancel()

    def _follow(self, submission_id: str, pipe: LogPipe) -> Future[None]:
        return self._reach(
            lambda connections: _Follower(submission_id, self._store, connections, self._logs, pipe).run(
                self._hub
            )
        )


async def _all_that_waits(pieces: asyncio.Queue[str | None]) -> str:
    """Return the available pieces as one, so that a busy server sends less often. Empty: the end."""
    text = ""
    while not text or (len(text) < PIECE_CHARS and not pieces.empty()):
        piece = await pieces.get()
        if piece is None:
            pieces.put_nowait(None)
            break
        text += piece
    return text


class _Follower:
    """Puts the pieces of one job's log out, each once."""

    def __init__(
        self,
        submission_id: str,
        store: JobStore,
        connections: Connections,
        logs: SharedLogs,
        pipe: LogPipe,
    ) -> None:
        self._submission_id = submission_id
        self._store = store
        self._connections = connections
        self._logs = logs
        self._pipe = pipe
        self._attempt = 0
        #: Characters and bytes of the current attempt's log that were put out.
        self._offset = self._bytes = 0
        #: The attempt, by Ray's id, that is being tailed.
        self._tailed: str | None = None
        self._tailing: asyncio.Task[None] | None = None

    async def run(self, hub: EventHub) -> None:
        """Tail the job while it is on a cluster.

        Ray closes a tail seconds after the job has ended. The store knows at once, and has the log.
        """
        with hub.subscribe_async([self._submission_id]) as subscription:
            try:
                while True:
                    for job in (await subscription.wait()).values():
                        if job is None:
                            raise JobNotFound(self._submission_id)
                        await self._follow(job, subscription.nudge)
                        if job.final:
                            return
                    if self._tailing is not None and self._tailing.done():
                        self._tailing.result()  # a bug: it ends only when cancelled
            finally:
                self._end_tail()

    async def _follow(self, job: Job, when_it_ends: Callable[[], None]) -> None:
        """Tail the attempt that the job has now; of one that has ended, put out the rest."""
        executor = self._executor_of(job) if job.state in ON_CLUSTER else None
        if executor is None or job.remote_id != self._tailed:
            self._end_tail()
        await self._turn_to(job)
        if job.final:
            await self._rest(job)
        elif executor is not None and job.remote_id is not None and self._tailing is None:
            self._tailed = job.remote_id
            self._tailing = asyncio.create_task(self._read_on(job))
            self._tailing.add_done_callback(lambda _: when_it_ends())

    def _end_tail(self) -> None:
        """End the tail without waiting for it: what it still has, the kept log has too."""
        if self._tailing is not None:
            self._tailing.cancel()
        self._tailed = self._tailing = None

    async def _read_on(self, job: Job) -> None:
        """Read the log as it grows, again and again from where it broke off, until cancelled."""
        assert job.remote_id is not None
        while True:
            executor = self._executor_of(job)  # another one when clusters.yaml has changed
            if executor is not None:
                async with aclosing(self._logs.pieces(executor, job.remote_id, self._offset)) as pieces:
                    async for piece in pieces:
                        self._out(piece)
                        await self._pipe.room()
            await asyncio.sleep(PAUSE_S)

    async def _turn_to(self, job: Job) -> None:
        """Leave earlier attempts behind, each with what is kept of its log."""
        while self._attempt < job.attempt:
            if self._attempt:
                await self._put_rest(await self._kept(self._attempt) or "")
            if self._offset:
                self._pipe.put(next_attempt(self._attempt))
            await self._pipe.room()
            self._attempt, self._offset, self._bytes = self._attempt + 1, 0, 0

    async def _rest(self, job: Job) -> None:
        """Put out what the tail had not seen when the job ended: from the kept copy, else the cluster."""
        kept = await self._kept(job.attempt)
        executor = self._executor_of(job)
        if executor is not None and job.remote_id is not None and (kept is None or self._misses(kept)):
            with suppress(ClusterError):
                ended = self._logs.ended(
                    executor, job.remote_id
                )  # referenced until all of it is yielded: other readers share it
                await self._put_rest(await ended.text())
                return
        await self._put_rest(kept or "")

    async def _kept(self, attempt: int) -> str | None:
        return await asyncio.to_thread(self._store.load_log, self._submission_id, attempt)

    def _misses(self, kept: str) -> bool:
        """Tell whether a kept log begins after what was put out."""
        return self._bytes < missing_bytes(kept)

    async def _put_rest(self, kept: str) -> None:
        """Put out what follows in a kept log. Where its beginning is missing, it says so itself."""
        missing, place = missing_bytes(kept), 0
        if not missing:
            place = self._offset
        elif self._bytes > missing:
            kept = without_note(kept).encode()[self._bytes - missing :].decode(errors="replace")
        for start in range(place, len(kept), PIECE_CHARS):
            self._out(kept[start : start + PIECE_CHARS])
            await self._pipe.room()

    def _executor_of(self, job: Job) -> Executor | None:
        """Return what has its log; None: it has none, or its cluster is no longer in clusters.yaml."""
        connection = self._connections.get(job.cluster or "")
        return None if connection is None or job.spec.is_session else connection.executor

    def _out(self, piece: str) -> None:
        if piece:
            self._offset += len(piece)
            self._bytes += len(piece.encode(errors="replace"))
            self._pipe.put(piece)
