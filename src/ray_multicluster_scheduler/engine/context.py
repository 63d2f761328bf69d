"""What every part of the engine needs, handed over in one record."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from ray_multicluster_scheduler.cluster_health.tcp_port import head_ports_here
from ray_multicluster_scheduler.cluster_health.watch import ClusterWatch
from ray_multicluster_scheduler.config import Config, Settings
from ray_multicluster_scheduler.engine.session_executor import SessionExecutor
from ray_multicluster_scheduler.engine.store_thread import StoreThread
from ray_multicluster_scheduler.model.execution import RAY_CLIENT, RAY_JOBS
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.ports import Clock, Connections, Executor
from ray_multicluster_scheduler.store_ports import JobStore


def nothing_happens(point: str) -> None:
    """Pass a named crash point: only tests put something else here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineContext:
    """The engine's surroundings. Tests pass their own clock, connections and crash points."""

    config: Config
    store: JobStore
    packages: PackageStore
    connections: Connections
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
    _sessions: dict[str, SessionExecutor] = field(default_factory=dict, init=False)

    def executor(self, cluster: str, name: str) -> Executor:
        """Return an executor of a cluster by its name, one of `EXECUTORS`."""
        connection = self.connections[cluster]
        if name == RAY_JOBS:
            return connection.executor
        if name != RAY_CLIENT:
            raise ValueError(f"this version has no executor {name!r}; the job belongs to a newer one")
        return self._sessions.setdefault(
            cluster, SessionExecutor(cluster, connection.probe, self.store, self.offload, self.clock)
        )

    @property
    def settings(self) -> Settings:
        """Return the scheduler's settings."""
        return self.config.settings
