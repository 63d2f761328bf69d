"""One truthful look at one cluster, within one deadline.

`/api/version` answers for a minute after the cluster's control process died, so a look counts only when
the nodes came back too, and an answer about a job. That is one job which is not there, because a list of all
jobs takes as long as the cluster is old. Usage, the Python version and a list are welcome but not needed:
without them the cluster works, and the value is unknown.

At most two requests are open at a time: a watch of 200 clusters stays far below the usual limit of 1024
open files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from ray_multicluster_scheduler.asyncio_tools import both, within
from ray_multicluster_scheduler.errors import ClusterError, ClusterTimeout, RemoteJobNotFound
from ray_multicluster_scheduler.model.cluster import Node, RemoteVersion, Usage
from ray_multicluster_scheduler.model.execution import AttemptStatus, Inventory, InventoryRow
from ray_multicluster_scheduler.model.resources import Resources, plus
from ray_multicluster_scheduler.ports import Clock, ClusterConnection, ClusterProbe, Executor

T = TypeVar("T")

#: Nobody's job. Ray asks its control process for it, and says that it does not exist.
NO_JOB = "raymc-probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a cluster answered to one look."""

    version: RemoteVersion
    nodes: tuple[Node, ...]
    #: The jobs that run; None: not asked for, or not told in time.
    inventory: Inventory | None
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


async def read_cluster(
    name: str, cluster: ClusterConnection, *, clock: Clock, deadline_s: float, lists_jobs: bool = False
) -> Reading:
    """Look at a cluster; raise `ClusterError` when version, nodes or jobs fail or are late."""
    started, ends_at = clock.monotonic(), asyncio.get_running_loop().time() + deadline_s
    try:
        (version, nodes), _ = await within(
            deadline_s, both(_version_and_nodes(cluster.probe), _jobs_answer(cluster.executor))
        )
    except asyncio.TimeoutError:
        raise ClusterTimeout(name, f"no answer to nodes and jobs within {deadline_s:g} s") from None
    latency_s = clock.monotonic() - started
    left_s = ends_at - asyncio.get_running_loop().time()
    usage, python_version = await both(
        read_usage(cluster.probe, deadline_s=left_s), _if_told(cluster.probe.python_version, left_s)
    )
    inventory = None
    if lists_jobs:
        left_s = ends_at - asyncio.get_running_loop().time()
        inventory = await _if_told(lambda: cluster.executor.inventory(_is_running), left_s)
    return Reading(
        version=version,
        nodes=nodes,
        inventory=inventory,
        usage=usage,
        python_version=python_version,
        latency_s=latency_s,
    )


async def read_usage(probe: ClusterProbe, *, deadline_s: float) -> Usage | None:
    """Return what a cluster has and uses; None when it does not tell in time."""
    return await _if_told(probe.usage, deadline_s)


async def _jobs_answer(executor: Executor) -> None:
    with suppress(RemoteJobNotFound):
        await executor.get(NO_JOB)


def _is_running(row: InventoryRow) -> bool:
    return row.status is AttemptStatus.RUNNING


async def _version_and_nodes(probe: ClusterProbe) -> tuple[RemoteVersion, tuple[Node, ...]]:
    return await probe.version(), await probe.nodes()


async def _if_told(ask: Callable[[], Coroutine[Any, Any, T]], timeout_s: float) -> T | None:
    try:
        return await within(timeout_s, ask())
    except (ClusterError, asyncio.TimeoutError):
        return None
