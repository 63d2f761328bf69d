"""The metrics of a server as they are in its registry."""

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import ProcessCollector
from tests.support.builders import a_cluster

from ray_multicluster_scheduler.config import Config, Settings
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.server.metrics import Metrics
from ray_multicluster_scheduler.server.serve import serving_clients
from ray_multicluster_scheduler.server.server_options import ServerOptions
from ray_multicluster_scheduler.service.auth import Callers, RefusedLogins
from ray_multicluster_scheduler.service.caller import Caller

_SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


@dataclass(frozen=True, kw_only=True)
class Known:
    """One metric that `/metrics` shows."""

    name: str
    kind: str
    labels: tuple[str, ...]

    @property
    def shown(self) -> str:
        """The name that a query uses, but for the parts of a histogram."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    @property
    def samples(self) -> set[str]:
        """All names that a query may use."""
        return {self.name + suffix for suffix in _SUFFIXES[self.kind]}


def known_metrics(directory: Path) -> list[Known]:
    """Return every metric of a server, in the order in which they are shown."""
    config = Config(path=directory / "clusters.yaml", clusters=(a_cluster("a"),), settings=Settings())
    scheduler = EmbeddedScheduler(config, directory=directory / "state", environ={})
    try:
        return asyncio.run(_all_known(scheduler))
    finally:
        scheduler.stop()


async def _all_known(scheduler: EmbeddedScheduler) -> list[Known]:
    """Return the metrics of a server with both of its ports."""
    metrics, logins = Metrics(scheduler), RefusedLogins(scheduler.access, scheduler.clock)
    callers = Callers(scheduler.authenticator, logins, always=False, local=Caller(user="ann"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with serving_clients(
            scheduler, ServerOptions(), listener, callers=callers, registry=metrics.registry
        ):
            return list(_known(metrics))


def _known(metrics: Metrics) -> Iterator[Known]:
    for collector in list(metrics.registry._collector_to_names):
        if isinstance(collector, ProcessCollector):
            continue
        for family in collector.collect():
            labelled = collector if hasattr(collector, "_labelnames") else family
            yield Known(
                name=family.name,
                kind=family.type,
                labels=tuple(labelled._labelnames),
            )
