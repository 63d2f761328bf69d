"""Logs of jobs: followed across reconnects and attempts, shared between their readers, or read as a whole."""

from __future__ import annotations

import asyncio
import queue
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

from ray_multicluster_scheduler.errors import ClusterError, JobNotFound
from ray_multicluster_scheduler.executors.contract import Executor
from ray_multicluster_scheduler.executors.registry import Executors
from ray_multicluster_scheduler.model.job import Job, missing_bytes, without_note
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.ports import Connections
from ray_multicluster_scheduler.service.events import EventHub

if TYPE_CHECKING:
    from ray_multicluster_scheduler.store import Store

# One connection to a cluster for all readers of the same log, each at its own position.
#
# The last part of the log is buffered, so that slower readers can share the connection. No reader waits for
# a slow one: a reader that falls too far behind gets its own connection, and reads at its own pace.


#: How many characters of a log are buffered for readers that may join later,
KEPT_CHARS = 2**17
#: and how many for a reader that is behind. A slower reader needs its own connection.
MOST_CHARS = 2**21
#: Shorter pieces are joined, so that a log that comes in tiny pieces takes no more memory.
SHORT_CHARS = 2**10


class SharedLogs:
    """The logs that are being read from clusters now."""

    def __init__(self) -> None:
        #: Open readings, oldest first, by executor (which belongs to one event loop) and remote id.
        self._readings: dict[tuple[Executor, str], list[_Reading]] = {}
        #: By the same key, while a reader holds it.
        self._ended: WeakValueDictionary[tuple[Executor, str], EndedLog] = WeakValueDictionary()

    def ended(self, executor: Executor, remote_id: str) -> EndedLog:
        """Return the log of a job that has ended; all readers share one copy in memory."""
        found = self._ended.get((executor, remote_id))
        if found is None or found.failed:
            found = self._ended[executor, remote_id] = EndedLog(executor, remote_id)
        return found

    async def pieces(self, executor: Executor, remote_id: str, place: int) -> AsyncGenerator[str, None]:
        """Yield a log from this character on as it grows; ends when it broke off."""
        me, current = object(), None
        try:
            while True:
                best = self._best(executor, remote_id, place, current)
                best.places[me] = place
                if current is not None and current is not best:
                    self._leave(executor, remote_id, current, me)
                current = best
                piece = await current.after(place)
                if piece is None:
                    return
                place += len(piece)
                yield piece
        finally:
            if current is not None:
                self._leave(executor, remote_id, current, me)

    def _best(self, executor: Executor, remote_id: str, place: int, current: _Reading | None) -> _Reading:
        """Return the reading to go on with: an older one as soon as that is not far away."""
        readings = self._readings.setdefault((executor, remote_id), [])
        if current is not None and current.begin > place:
            current = None  # left behind
        for each in readings:
            if each is current:
                return each
            near = each.begin <= place if current is None else abs(each.end - place) <= KEPT_CHARS // 2
            if near and not each.ended:
                return each
        readings.append(_Reading(executor, remote_id))
        return readings[-1]

    def _leave(self, executor: Executor, remote_id: str, reading: _Reading, me: object) -> None:
        del reading.places[me]
        if not reading.places:
            reading.close()
            self._readings[executor, remote_id].remove(reading)
            if not self._readings[executor, remote_id]:
                del self._readings[executor, remote_id]


class EndedLog:
    """A log that does not grow any more."""

    def __init__(self, executor: Executor, remote_id: str) -> None:
        self._reading = asyncio.create_task(executor.log(remote_id))
        self._reading.add_done_callback(lambda _: self.failed)  # all readers may have left by now

    @property
    def failed(self) -> bool:
        """Tell whether it could not be read."""
        done = self._reading
        return done.done() and (done.cancelled() or done.exception() is not None)

    async def text(self) -> str:
        """Return it, or raise why the cluster did not give it."""
        return await asyncio.shield(self._reading)


class _Reading:
    """One connection. It is read while at least one reader has consumed all earlier pieces."""

    def __init__(self, executor: Executor, remote_id: str) -> None:
        #: How far each of its readers has come.
        self.places: dict[object, int] = {}
        #: Characters that were read.
        self.end = 0
        #: The last pieces, each with the place where it begins.
        self._kept: deque[tuple[int, str]] = deque()
        self._wanted, self._news = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._read(executor, remote_id))
        self._task.add_done_callback(lambda _: self._news.set())

    @property
    def begin(self) -> int:
        """The place from which on it can be read."""
        return self._kept[0][0] if self._kept else 0

    @property
    def ended(self) -> bool:
        """Tell whether no more will come."""
        return self._task.done()

    def close(self) -> None:
        """Close the connection, without waiting for that."""
        self._task.cancel()

    async def after(self, place: int) -> str | None:
        """Return what follows this place, as soon as there is something; None: it broke off."""
        while self.end <= place:
            if self._task.done():
                self._task.result()  # raises a bug
                return None
            self._wanted.set()
            await self._news.wait()
        start, piece = self._kept[bisect_right(self._kept, place, key=lambda kept: kept[0]) - 1]
        return piece[place - start :]

    async def _read(self, executor: Executor, remote_id: str) -> None:
        with suppress(ClusterError):  # the job's state tells what is going on
            async with aclosing(cast(AsyncGenerator[str, None], executor.follow_log(remote_id))) as source:
                async for piece in source:
                    self._keep(piece)
                    self._wanted.clear()
                    told, self._news = self._news, asyncio.Event()
                    told.set()
                    await self._wanted.wait()
            if (await executor.get(remote_id)).status.final:
                # That was all. The readers leave when the store has heard of the end too: to connect again
                # until then would read the whole log again.
                await asyncio.Event().wait()

    def _keep(self, piece: str) -> None:
        start = self.end
        self.end += len(piece)
        if self._kept and len(self._kept[-1][1]) + len(piece) <= SHORT_CHARS:
            start, before = self._kept.pop()
            piece = before + piece
        self._kept.append((start, piece))
        needed = max(self.end - MOST_CHARS, min([self.end - KEPT_CHARS, *self.places.values()]))
        while len(self._kept) > 1 and self._kept[1][0] <= needed:
            self._kept.popleft()


# Pieces of a log on their way from the loop that reads a cluster to a thread or another loop.


#: How many characters are buffered for a slow reader before reading from the cluster pauses.
MOST_PIPED_CHARS = 2**20


class LogPipe:
    """Passes pieces on, and makes the writer wait while the buffer is full."""

    def __init__(self, hand: Callable[[str], None]) -> None:
        self._hand = hand
        self._lock = threading.Lock()
        self._untaken = 0
        #: The writer's loop and what wakes it, while it waits.
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def put(self, piece: str) -> None:
        """Hand a piece to the reader."""
        with self._lock:
            self._untaken += len(piece)
        self._hand(piece)

    async def room(self) -> None:
        """Return when the reader has taken enough for more to be put."""
        while True:
            with self._lock:
                if self._untaken < MOST_PIPED_CHARS:
                    return
                taken = asyncio.Event()
                self._waiting = asyncio.get_running_loop(), taken
            await taken.wait()

    def taken(self, piece: str) -> None:
        """Note, in the reader's thread, that a piece was taken."""
        with self._lock:
            self._untaken -= len(piece)
            if self._waiting is None or self._untaken >= MOST_PIPED_CHARS:
                return
            (loop, event), self._waiting = self._waiting, None
        with suppress(RuntimeError):  # the writer's loop was closed meanwhile
            loop.call_soon_threadsafe(event.set)


# Follow a job's log across reconnects and attempts, from its start to the job's end.


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

    def __init__(self, reach: Reach, executors: Executors, hub: EventHub, store: Store) -> None:
        self._reach = reach
        self._executors = executors
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
        def follow(connections: Connections) -> Coroutine[Any, Any, None]:
            def executor_of(job: Job) -> Executor | None:
                return _keeper_of_log(job, connections, self._executors)

            return _Follower(submission_id, self._store, executor_of, self._logs, pipe).run(self._hub)

        return self._reach(follow)


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
        store: Store,
        executor_of: Callable[[Job], Executor | None],
        logs: SharedLogs,
        pipe: LogPipe,
    ) -> None:
        self._submission_id = submission_id
        self._store = store
        self._executor_of = executor_of
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
        return await asyncio.to_thread(self._store.history.load_log, self._submission_id, attempt)

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

    def _out(self, piece: str) -> None:
        if piece:
            self._offset += len(piece)
            self._bytes += len(piece.encode(errors="replace"))
            self._pipe.put(piece)


def _keeper_of_log(job: Job, connections: Connections, executors: Executors) -> Executor | None:
    """Return what has a job's log; None: it has none, or its cluster is no longer in clusters.yaml."""
    connection, name = connections.get(job.cluster or ""), job.spec.executor
    return executors.on(connection, name) if connection and executors.can(name).keeps_log else None


# The log of a job over all its attempts, as far as it is there now.


async def whole_log(reach: Reach, executors: Executors, store: Store, job: Job) -> str:
    """Return the text that following the log would have yielded so far.

    The logs of ended attempts are in the store. Only the cluster of the current attempt is asked, and no
    thread waits for it.
    """
    text = ""
    for number in range(1, job.attempt + 1):
        if text:
            text += next_attempt(number - 1)
        kept = await asyncio.to_thread(store.history.load_log, job.submission_id, number)
        if kept is None and number == job.attempt and job.state in ON_CLUSTER:
            kept = await _read(reach, executors, job)
        text += kept or ""
    return text


async def _read(reach: Reach, executors: Executors, job: Job) -> str:
    async def read(connections: Connections) -> str:
        executor = _keeper_of_log(job, connections, executors)
        return "" if executor is None or job.remote_id is None else await executor.log(job.remote_id)

    try:
        text: str = await asyncio.wrap_future(reach(read))
    except ClusterError:
        return ""
    return text
