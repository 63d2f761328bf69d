"""One truthful look at one cluster, within one deadline.

`/api/version` answers for a minute after the cluster's control process died, so a look counts only when
the nodes and the job list came back too. Usage and the Python version are welcome but not needed: without
them the cluster works, and the value is unknown.

At most two requests are open at a time: a watch of 200 clusters stays far below the usual limit of 1024
open files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from ray_multicluster_scheduler.engine.tasks import both, within
from ray_multicluster_scheduler.errors import ClusterError, ClusterTimeout
from ray_multicluster_scheduler.model.cluster import Node, Usage
from ray_multicluster_scheduler.model.remote import RemoteJob, RemoteVersion
from ray_multicluster_scheduler.model.resources import Resources, plus
from ray_multicluster_scheduler.ports import Clock, RayApi

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a cluster answered to one look."""

    version: RemoteVersion
    nodes: tuple[Node, ...]
    jobs: tuple[RemoteJob, ...]
    #: None: not told in time, which does not make the cluster unusable.
    usage: Usage | None
    python_version: str | None
    #: How long the needed answers took.
    latency_s: float

    @property
    def total(self) -> Resources:
        """Return what the cluster has: as its usage tells, else the sum of its living nodes."""
        if self.usage is not None and self.usage.total is not None:
            return self.usage.total
        total: Resources = {}
        for node in self.nodes:
            if node.alive:
                total = plus(total, node.resources)
        return total


async def read_cluster(name: str, api: RayApi, *, clock: Clock, deadline_s: float) -> Reading:
    """Look at a cluster; raise `ClusterError` when version, nodes or job list fail or are late."""
    started, ends_at = clock.monotonic(), asyncio.get_running_loop().time() + deadline_s
    try:
        (version, nodes), jobs = await within(deadline_s, _needed(api))
    except asyncio.TimeoutError:
        raise ClusterTimeout(name, f"no answer to nodes and job list within {deadline_s:g} s") from None
    latency_s = clock.monotonic() - started
    left_s = ends_at - asyncio.get_running_loop().time()
    usage, python_version = await both(
        read_usage(api, deadline_s=left_s), _if_told(api.python_version, left_s)
    )
    return Reading(
        version=version,
        nodes=nodes,
        jobs=jobs,
        usage=usage,
        python_version=python_version,
        latency_s=latency_s,
    )


async def read_usage(api: RayApi, *, deadline_s: float) -> Usage | None:
    """Return what a cluster has and uses; None when it does not tell in time."""
    return await _if_told(api.usage, deadline_s)


async def _needed(api: RayApi) -> tuple[tuple[RemoteVersion, tuple[Node, ...]], tuple[RemoteJob, ...]]:
    return await both(_version_and_nodes(api), api.list_jobs())


async def _version_and_nodes(api: RayApi) -> tuple[RemoteVersion, tuple[Node, ...]]:
    return await api.version(), await api.nodes()


async def _if_told(ask: Callable[[], Coroutine[Any, Any, T]], timeout_s: float) -> T | None:
    try:
        return await within(timeout_s, ask())
    except (ClusterError, asyncio.TimeoutError):
        return None
