"""What every part of the engine needs, and the thread of its store."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from ray_multicluster_scheduler.cluster_health.tcp_port import head_ports_here
from ray_multicluster_scheduler.cluster_health.watch import ClusterWatch
from ray_multicluster_scheduler.config import Config, Settings
from ray_multicluster_scheduler.executors.contract import Executor
from ray_multicluster_scheduler.executors.registry import Executors
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.ports import Clock, Connections
from ray_multicluster_scheduler.store import Store

# Store calls off the event loop, in order, on one thread of their own.
#
# A database that another process has locked must not stop the loop that talks to the clusters. The default
# executor is not used because it refuses work while the interpreter ends, which is when the lease is
# released.

P = ParamSpec("P")
T = TypeVar("T")


class StoreThread:
    """`await offload(function, ...)` runs blocking functions one after another on a daemon thread."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="raymc-store", daemon=True)
        self._thread.start()

    async def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function` on the thread and return its result or raise its exception here."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            try:
                result = function(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - carried to the caller, whatever it is
                loop.call_soon_threadsafe(_settle, future.set_exception, future, error)
            else:
                loop.call_soon_threadsafe(_settle, future.set_result, future, result)

        self._work.put(work)
        return await future

    def is_here(self) -> bool:
        """Tell whether the caller runs on this thread: then it is one of the functions given to it."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Let the thread end after what is queued."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


def _settle(setter: Callable[[Any], None], future: asyncio.Future[Any], value: Any) -> None:
    """Set a future unless its caller was cancelled meanwhile."""
    if not future.done():
        setter(value)


def nothing_happens(point: str) -> None:
    """Pass a named crash point: only tests put something else here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineContext:
    """The engine's surroundings. Tests pass their own clock, connections and crash points."""

    config: Config
    store: Store
    packages: PackageStore
    connections: Connections
    executors: Executors
    watch: ClusterWatch
    clock: Clock
    #: `await offload(function, ...)` runs a store call on the store's own thread.
    offload: StoreThread
    #: What the program of a job may show to the server, if it is told of one.
    job_token: Callable[[Job], str]
    #: Returns the ports of a head whose processes are on this machine, by the name of its session.
    head_ports: Callable[[str], Collection[int]] = field(default=head_ports_here)
    #: Called with the name of each point at which a crash must lose nothing (docs/failures.md).
    crash_point: Callable[[str], None] = field(default=nothing_happens)

    def executor(self, cluster: str, name: str) -> Executor:
        """Return an executor on a cluster, by its name."""
        return self.executors.on(self.connections[cluster], name)

    @property
    def settings(self) -> Settings:
        """Return the scheduler's settings."""
        return self.config.settings
