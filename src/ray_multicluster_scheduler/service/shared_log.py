"""One connection to a cluster for all readers of the same log, each at its own position.

The last part of the log is buffered, so that slower readers can share the connection. No reader waits for a
slow one: a reader that falls too far behind gets its own connection, and reads at its own pace.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import cast
from weakref import WeakValueDictionary

from ray_multicluster_scheduler.errors import ClusterError
from ray_multicluster_scheduler.ports import Executor

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
