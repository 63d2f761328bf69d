"""A thread that observes the clusters over HTTP, from the first task or actor that does not fit at home."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from ray_multicluster_scheduler.clock import jitter
from ray_multicluster_scheduler.cluster_health.watch import ClusterWatch
from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.ray_api.http_connection import HttpConnection, open_connection

log = logging.getLogger(__name__)
T = TypeVar("T")
HttpConnections = Mapping[str, HttpConnection]
STOP_TIMEOUT_S = 5.0


class ClusterObserver:
    """Keeps snapshots of all clusters up to date. Nothing is opened before the first query."""

    def __init__(self, config: Config, environ: Mapping[str, str], clock: Clock) -> None:
        self._config = config
        self._environ = environ
        self._clock = clock
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ready: concurrent.futures.Future[_Observing] = concurrent.futures.Future()

    def snapshots(self) -> Mapping[str, ClusterSnapshot]:
        """Return the last snapshot of every cluster; the first call waits for the first ones."""
        running = self._running()
        _result(running.first_look)
        return running.watch.snapshots()

    def call(self, function: Callable[[HttpConnections], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine with the connections to the clusters on the thread, and return its result."""
        running = self._running()
        try:
            return asyncio.run_coroutine_threadsafe(function(running.connections), running.loop).result()
        except concurrent.futures.CancelledError as ended:
            raise SchedulerError("the clusters are no longer observed; the scheduler was stopped") from ended

    def close(self) -> None:
        """Stop the thread."""
        with self._lock:
            if self._thread is None:
                return
            thread, ready = self._thread, self._ready
            self._thread, self._ready = None, concurrent.futures.Future()
        with suppress(SchedulerError, RuntimeError):  # the thread has ended already
            running = _result(ready)
            running.loop.call_soon_threadsafe(running.stop.set)
        thread.join(STOP_TIMEOUT_S)

    def _running(self) -> _Observing:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._ready = concurrent.futures.Future()
                self._thread = threading.Thread(
                    target=self._run, args=(self._ready,), name="raymc-observer", daemon=True
                )
                self._thread.start()
            ready = self._ready
        return _result(ready)

    def _run(self, ready: concurrent.futures.Future[_Observing]) -> None:
        try:
            asyncio.run(self._main(ready))
        except BaseException as failure:  # raised by the callers that wait
            log.exception("the observer of the clusters failed")
            with self._lock:
                if self._ready is ready:
                    self._thread = None  # before callers hear of it: their next question starts another
            waiting = ready.result().first_look if ready.done() else ready
            if not waiting.done():
                waiting.set_exception(failure)

    async def _main(self, ready: concurrent.futures.Future[_Observing]) -> None:
        settings = self._config.settings
        connections = {
            spec.name: open_connection(spec, self._environ, request_timeout_s=settings.request_timeout_s)
            for spec in self._config.clusters
        }
        watch = ClusterWatch(connections, clock=self._clock, settings=settings, jitter=jitter)
        running = _Observing(asyncio.get_running_loop(), connections, watch)
        ready.set_result(running)
        following = asyncio.create_task(self._follow(running))
        try:
            await asyncio.wait(
                {following, asyncio.create_task(running.stop.wait())}, return_when=asyncio.FIRST_COMPLETED
            )
            if following.done():
                following.result()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await asyncio.gather(*(each.close() for each in connections.values()))

    async def _follow(self, running: _Observing) -> None:
        await running.watch.first_look()
        running.first_look.set_result(None)
        await running.watch.run()


def _result(future: concurrent.futures.Future[T]) -> T:
    """Return the result of a future of the thread, or raise `SchedulerError` if it failed."""
    if (failure := future.exception()) is not None:
        raise SchedulerError(f"the clusters cannot be observed: {failure!r}") from failure
    return future.result()


class _Observing:
    """The state of a running thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connections: HttpConnections, watch: ClusterWatch
    ) -> None:
        self.loop = loop
        self.connections = connections
        self.watch = watch
        self.stop = asyncio.Event()
        #: Done when every cluster has a snapshot or has timed out.
        self.first_look: concurrent.futures.Future[None] = concurrent.futures.Future()
