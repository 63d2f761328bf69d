"""Calls to clusters from any thread, on one event loop in a thread of its own, with kept connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from ray_multicluster_scheduler.asyncio_tools import cancel_all, together
from ray_multicluster_scheduler.config import Config, Settings
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.ports import ClusterConnection, Connections

T = TypeVar("T")

#: How long a program that ends waits for connections to close.
CLOSE_TIMEOUT_S = 5.0

Connect = Callable[[ClusterSpec, Settings], ClusterConnection]


class ClusterLoop:
    """Runs coroutines that talk to clusters. Thread and connections come with the first of them."""

    def __init__(self, config: Config, connect: Connect) -> None:
        self._config = config
        self._connect = connect
        self._connections = LiveConnections()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def begin(self, function: Callable[[Connections], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run a coroutine with the connections to all clusters; also works inside a running loop."""
        loop = self._started()  # first: the function may take a connection at once
        return asyncio.run_coroutine_threadsafe(function(self._connections), loop)

    def change(self, config: Config) -> None:
        """Use another configuration from now on. Connections to clusters that did not change are kept."""
        with self._lock:
            loop, former, self._config = self._loop, self._config, config
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._change(former, config), loop).result()

    def close(self) -> None:
        """End what runs, and close the connections."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            with suppress(RuntimeError):  # the loop is closed already
                loop.call_soon_threadsafe(loop.stop)
            thread.join(CLOSE_TIMEOUT_S)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = loop = asyncio.new_event_loop()
                self._connections.now = self._connected(self._config)
                self._thread = threading.Thread(
                    target=self._run, args=(loop,), name="raymc-clusters", daemon=True
                )
                self._thread.start()
            return self._loop

    def _connected(self, config: Config) -> dict[str, ClusterConnection]:
        return {spec.name: self._connect(spec, config.settings) for spec in config.clusters}

    async def _change(self, former: Config, config: Config) -> None:
        known = self._connections.now
        same = former.clusters if former.settings == config.settings else ()
        fresh = {
            spec.name: known[spec.name] if spec in same else self._connect(spec, config.settings)
            for spec in config.clusters
        }
        self._connections.now = fresh
        kept = {id(each) for each in fresh.values()}
        await together(each.close() for each in known.values() if id(each) not in kept)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
            loop.run_until_complete(cancel_all(asyncio.all_tasks(loop)))
            for each in self._connections.now.values():
                loop.run_until_complete(each.close())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


class LiveConnections(Mapping[str, ClusterConnection]):
    """The clusters of now, for what outlives a change of the configuration."""

    def __init__(self) -> None:
        self.now: Connections = {}

    def __getitem__(self, name: str) -> ClusterConnection:
        return self.now[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.now)

    def __len__(self) -> int:
        return len(self.now)
