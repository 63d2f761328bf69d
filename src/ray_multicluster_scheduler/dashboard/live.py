"""Tells all open pages what happens: at once after a quiet time, and not more often than they can show it.

Pages that ask the same question in the same moment share the answer, so fifty open pages cost little more
than one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, TypeVar

from ray_multicluster_scheduler.asyncio_tools import cancel_all
from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.service.api import Service
from ray_multicluster_scheduler.service.views import ClusterView

log = logging.getLogger(__name__)

T = TypeVar("T")
#: The least time between two rounds of updates, and the most: ages and clusters change without an event.
LEAST_GAP_S = 0.5
MOST_GAP_S = 5.0
#: After a failure of the store.
RETRY_S = 2.0
#: How many samples of a cluster are kept: ten minutes.
SAMPLES = 120

Listener = Callable[[], Awaitable[None]]


class Live:
    """Tells listeners that something has happened, and keeps what they all ask for until then."""

    def __init__(self, service: Callable[[], Service]) -> None:
        self._service = service
        self._listeners: set[Listener] = set()
        self._happened = asyncio.Event()
        self._opened = asyncio.Event()
        self._answers: dict[Hashable, asyncio.Future[Any]] = {}
        #: The last response times of each cluster, oldest first; None: it did not answer.
        self.latencies: dict[str, deque[float | None]] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow what happens until the block ends."""
        tasks = [asyncio.create_task(each()) for each in (self._hear, self._tell, self._sample)]
        try:
            yield
        finally:
            await cancel_all(tasks)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call a listener whenever something may have changed; returns what ends that."""
        self._listeners.add(listener)
        self._opened.set()
        return lambda: self._listeners.discard(listener)

    async def shared(self, key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the answer to a question, asked once for all pages between two rounds of updates."""
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = asyncio.ensure_future(ask())
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(answer)

    def forget_answers(self) -> None:
        """Ask everything anew: somebody has changed something."""
        self._answers.clear()

    async def _hear(self) -> None:
        """Note that a job has moved. Nothing is read from the store while no page is open."""
        while True:
            await self._opened.wait()
            try:
                async with aclosing(self._service().events_async()) as events:
                    async for _ in events:
                        self._happened.set()
                        if not self._listeners:
                            self._opened.clear()
                            break
            except SchedulerError as problem:
                log.warning("the pages hear of no changes now", extra={"why": str(problem)})
                await asyncio.sleep(RETRY_S)

    async def _tell(self) -> None:
        """Tell all listeners in rounds."""
        while True:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._happened.wait(), MOST_GAP_S)
            self._happened.clear()
            self.forget_answers()
            told = await asyncio.gather(*(each() for each in self._listeners), return_exceptions=True)
            for problem in told:
                if isinstance(problem, Exception):  # of one page; the others go on
                    log.error("a page was not refreshed", exc_info=problem)
            await asyncio.sleep(LEAST_GAP_S)

    async def _sample(self) -> None:
        """Keep the response times of the clusters, also while nobody looks."""
        while True:
            with suppress(SchedulerError):
                self._keep(await asyncio.to_thread(lambda: self._service().clusters()))
            await asyncio.sleep(MOST_GAP_S)

    def _keep(self, clusters: tuple[ClusterView, ...]) -> None:
        former: Mapping[str, deque[float | None]] = self.latencies
        self.latencies = {
            cluster.name: former.get(cluster.name) or deque(maxlen=SAMPLES) for cluster in clusters
        }
        for cluster in clusters:
            answered = cluster.problem is None
            self.latencies[cluster.name].append(cluster.latency_s if answered else None)
