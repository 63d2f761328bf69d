"""A thread that watches the clusters over HTTP once tasks or actors need more than home has."""

from __future__ import annotations

import asyncio
import concurrent.futures
import random
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.engine.watch import ClusterWatch
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.ray_api.state import StateApi, open_state_api

T = TypeVar("T")
Apis = Mapping[str, StateApi]
STOP_TIMEOUT_S = 5.0


class Scout:
    """Keeps snapshots of all clusters fresh. Nothing is opened before the first question."""

    def __init__(self, config: Config, environ: Mapping[str, str], clock: Clock) -> None:
        self._config = config
        self._environ = environ
        self._clock = clock
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ready: concurrent.futures.Future[_Running] = concurrent.futures.Future()

    def snapshots(self) -> Mapping[str, ClusterSnapshot]:
        """Return what was last seen of every cluster; the first call waits a moment for a look at each."""
        running = self._running()
        running.looked.result()
        return running.watch.snapshots()

    def call(self, function: Callable[[Apis], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine that talks to clusters, and return its result here."""
        running = self._running()
        return asyncio.run_coroutine_threadsafe(function(running.apis), running.loop).result()

    def close(self) -> None:
        """Stop watching."""
        with self._lock:
            if self._thread is None:
                return
            running = self._ready.result()
            running.loop.call_soon_threadsafe(running.stop.set)
            self._thread.join(STOP_TIMEOUT_S)
            self._thread = None
            self._ready = concurrent.futures.Future()

    def _running(self) -> _Running:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="raymc-scout", daemon=True)
                self._thread.start()
        return self._ready.result()

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        settings = self._config.settings
        apis = {
            spec.name: open_state_api(spec, self._environ, request_timeout_s=settings.request_timeout_s)
            for spec in self._config.clusters
        }
        watch = ClusterWatch(apis, clock=self._clock, settings=settings, jitter=random.random)
        running = _Running(asyncio.get_running_loop(), apis, watch)
        self._ready.set_result(running)
        following = asyncio.create_task(self._follow(running))
        try:
            await asyncio.wait(
                {following, asyncio.create_task(running.stop.wait())}, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await asyncio.gather(*(api.close() for api in apis.values()))

    async def _follow(self, running: _Running) -> None:
        await running.watch.first_look()
        running.looked.set_result(None)
        await running.watch.run()


class _Running:
    """What there is while the thread runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, apis: Apis, watch: ClusterWatch) -> None:
        self.loop = loop
        self.apis = apis
        self.watch = watch
        self.stop = asyncio.Event()
        #: Done when every cluster was looked at once, or did not answer in time.
        self.looked: concurrent.futures.Future[None] = concurrent.futures.Future()
