"""Tells all open pages what happens: at once after a quiet time, and not more often than they can show it.

Pages that ask the same question in the same moment share the answer, so fifty open pages cost little more
than one. Each page is refreshed by a task of its own: one that waits for a slow answer delays no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from ray_multicluster_scheduler.asyncio_tools import cancel_all, wait_for
from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.service.service import LocalService
from ray_multicluster_scheduler.service.views import ClusterView

log = logging.getLogger(__name__)

T = TypeVar("T")
#: The least time between two rounds of updates, and the most: ages and clusters change without an event.
LEAST_GAP_S = 0.5
MOST_GAP_S = 5.0
#: How many samples of a cluster are kept: ten minutes.
SAMPLES = 120

Listener = Callable[[], Awaitable[None]]


class Live:
    """Tells listeners that something has happened, and keeps what they all ask for until then."""

    def __init__(self, service: Callable[[], LocalService]) -> None:
        self._service = service
        #: What wakes each listener, and the task that calls it.
        self._listeners: dict[asyncio.Event, asyncio.Task[None]] = {}
        self._happened = asyncio.Event()
        self._answers: dict[Hashable, asyncio.Future[Any]] = {}
        #: The last question of each kind, until it is answered.
        self._under_way: dict[Hashable, asyncio.Future[Any]] = {}
        #: The last response times of each cluster, oldest first; None: it did not answer.
        self.latencies: dict[str, deque[float | None]] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow what happens until the block ends."""
        loop = asyncio.get_running_loop()

        def changed() -> None:  # in any thread, after each commit
            if self._listeners and not self._happened.is_set():
                loop.call_soon_threadsafe(self._happened.set)

        end = await asyncio.to_thread(self._service().on_change, changed)
        tasks = [asyncio.create_task(each()) for each in (self._tell, self._sample)]
        try:
            yield
        finally:
            end()
            await cancel_all([*tasks, *self._listeners.values()])

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call a listener whenever something may have changed; returns what ends that."""
        news = asyncio.Event()
        self._listeners[news] = asyncio.create_task(self._call(listener, news))

        def end() -> None:
            if task := self._listeners.pop(news, None):
                task.cancel()

        return end

    async def shared(self, key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the answer to a question, asked once for all pages between two rounds of updates.

        A question that takes longer than a round is not asked a second time before it is answered.
        """
        answer = self._answers.get(key)
        if answer is None:
            answer = asyncio.ensure_future(self._ask_after(self._under_way.get(key), ask))
            self._answers[key] = self._under_way[key] = answer
            answer.add_done_callback(lambda done: self._answered(key, done))
        return await asyncio.shield(answer)

    def forget_answers(self) -> None:
        """Ask everything anew: somebody has changed something."""
        self._answers.clear()

    async def _ask_after(self, former: asyncio.Future[Any] | None, ask: Callable[[], Awaitable[T]]) -> T:
        if former is not None:
            await asyncio.wait([former])
        return await ask()

    def _answered(self, key: Hashable, answer: asyncio.Future[Any]) -> None:
        if self._under_way.get(key) is answer:
            del self._under_way[key]
        if not answer.cancelled():
            answer.exception()  # it is raised for whoever asked, if somebody still waits

    async def _tell(self) -> None:
        """Wake all listeners in rounds."""
        while True:
            await wait_for(self._happened, MOST_GAP_S)
            self._happened.clear()
            self.forget_answers()
            for news in self._listeners:
                news.set()
            await asyncio.sleep(LEAST_GAP_S)

    async def _call(self, listener: Listener, news: asyncio.Event) -> None:
        """Call one listener after each round, or after those that it has missed meanwhile."""
        while True:
            await news.wait()
            news.clear()
            try:
                await listener()
            except Exception:
                log.exception("a page was not refreshed")

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
