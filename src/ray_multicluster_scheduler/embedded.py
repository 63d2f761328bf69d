"""The engine inside this process: for the scheduler's process, for tests, for programs that want it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from ray_multicluster_scheduler.background import holder_name
from ray_multicluster_scheduler.clock import jitter
from ray_multicluster_scheduler.cluster_health.tcp_port import head_ports_here
from ray_multicluster_scheduler.cluster_health.watch import ClusterWatch
from ray_multicluster_scheduler.config import Config, Settings
from ray_multicluster_scheduler.engine.context import EngineContext, StoreThread, nothing_happens
from ray_multicluster_scheduler.engine.engine import EngineThread
from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.executors.registry import Executors
from ray_multicluster_scheduler.ports import ClusterConnection, Connections
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.service.service import Parts


class EmbeddedScheduler(Scheduler):
    """A scheduler whose engine runs in a thread of this process, from `start` to `stop`.

    Several processes may do the same on one store: one of them leads, and when it ends another one goes on.
    """

    def __init__(
        self,
        config: Config,
        *,
        directory: Path,
        environ: Mapping[str, str],
        crash_point: Callable[[str], None] = nothing_happens,
        head_ports: Callable[[str], Collection[int]] = head_ports_here,
    ) -> None:
        super().__init__(config, directory=directory, environ=environ)
        self._crash_point = crash_point
        self._head_ports = head_ports
        #: The name under which the engine takes the lease.
        self.holder = holder_name()
        self._engine: EngineThread | None = None

    def anew(self) -> EmbeddedScheduler:
        """Return a scheduler with the same configuration, with nothing opened or started."""
        return EmbeddedScheduler(
            self.config,
            directory=self.directory,
            environ=self._environ,
            crash_point=self._crash_point,
            head_ports=self._head_ports,
        )

    def start(self) -> None:
        """Start the engine, unless it runs."""
        with self._usable():
            parts = self.parts
            if self._engine is None:
                self._engine = EngineThread(lambda: self._context(parts), holder=self.holder)

    def pause(self) -> None:
        """End the engine, which gives its lease up; `start` starts another one."""
        with self._usable():
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.stop()

    def ensure_scheduled(self, *, at_once: bool = False) -> None:  # noqa: ARG002 - the engine is here
        """Raise what ended the engine, if something did."""
        if self._engine is not None:
            self._engine.check()

    def engine_problem(self) -> str | None:
        """Say why the engine does not run."""
        try:
            self.ensure_scheduled()
        except SchedulerError as problem:
            return str(problem)
        return "it is not started" if self._engine is None else None

    def is_leader(self, holder: str) -> bool:
        """Tell whether the engine holds the lease."""
        return holder == self.holder

    def reconnect(self, clusters: Collection[str]) -> None:
        """Connect to these clusters anew, because their tokens have changed."""
        with self._reloading, self._usable():
            engine, config = self._engine, self.config
        if engine is not None:
            specs = tuple(spec for spec in config.clusters if spec.name not in clusters)
            engine.change(lambda context: self._changed(context, replace(config, clusters=specs), config))

    def _close(self) -> None:
        if self._engine is not None:
            self._engine.stop()
        super()._close()

    def _change_engine(self, former: Config, fresh: Config, parts: Parts) -> None:
        with self._usable():
            engine = self._engine
        if engine is not None:
            engine.change(
                lambda context: replace(
                    self._changed(context, former, fresh), config=parts.config, packages=parts.packages
                )
            )

    def _changed(self, context: EngineContext, former: Config, fresh: Config) -> EngineContext:
        """Return the engine's context for a new configuration; connections that did not change are kept."""
        same = former.clusters if former.settings == fresh.settings else ()
        connections: dict[str, ClusterConnection] = {
            spec.name: context.connections[spec.name] if spec in same else self._connect(spec, fresh.settings)
            for spec in fresh.clusters
        }
        watch = self._watch(connections, fresh.settings, context.store.store_id)
        return replace(context, connections=connections, watch=watch)

    def _watch(self, connections: Connections, settings: Settings, origin: str) -> ClusterWatch:
        return ClusterWatch(connections, clock=self.clock, settings=settings, jitter=jitter, origin=origin)

    def _context(self, parts: Parts) -> EngineContext:
        settings, connections, offload = parts.config.settings, self._connect_all(), StoreThread()
        return EngineContext(
            config=parts.config,
            store=parts.store,
            packages=parts.packages,
            connections=connections,
            executors=Executors(parts.store, self.clock, offload=offload),
            watch=self._watch(connections, settings, parts.store.store_id),
            clock=self.clock,
            offload=offload,
            job_token=parts.job_tokens.token_of,
            head_ports=self._head_ports,
            crash_point=self._crash_point,
        )
