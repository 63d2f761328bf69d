"""One reliable probe of one cluster, within one deadline.

`/api/version` still answers for a minute after the cluster's GCS died, so a probe succeeds only if the
cluster also returns its nodes and answers a query for a job. The query is for a job that does not exist,
because a list of all jobs takes longer the more jobs the cluster remembers. Usage, the Python version and the
list are optional: without them the cluster is healthy and the value is unknown.

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

#: The id of no job: Ray looks it up in the GCS and answers that it does not exist.
PROBE_JOB_ID = "raymc-probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The answers of a cluster to one probe."""

    version: RemoteVersion
    nodes: tuple[Node, ...]
    #: The running jobs; None if they were not requested or not returned in time.
    inventory: Inventory | None
    #: None if it was not returned in time, which does not make the cluster unhealthy.
    usage: Usage | None
    python_version: str | None
    #: How long the mandatory answers took.
    latency_s: float

    @property
    def total(self) -> Resources:
        """Return the resources of the cluster: from its usage if known, else the sum over its live nodes."""
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
    """Probe a cluster; raise `ClusterError` if version, nodes or jobs fail or are late."""
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
        read_usage(cluster.probe, deadline_s=left_s), _answer_or_none(cluster.probe.python_version, left_s)
    )
    inventory = None
    if lists_jobs:
        left_s = ends_at - asyncio.get_running_loop().time()
        inventory = await _answer_or_none(lambda: cluster.executor.inventory(_is_running), left_s)
    return Reading(
        version=version,
        nodes=nodes,
        inventory=inventory,
        usage=usage,
        python_version=python_version,
        latency_s=latency_s,
    )


async def read_usage(probe: ClusterProbe, *, deadline_s: float) -> Usage | None:
    """Return the usage of a cluster; None if it does not answer in time."""
    return await _answer_or_none(probe.usage, deadline_s)


async def _jobs_answer(executor: Executor) -> None:
    with suppress(RemoteJobNotFound):
        await executor.get(PROBE_JOB_ID)


def _is_running(row: InventoryRow) -> bool:
    return row.status is AttemptStatus.RUNNING


async def _version_and_nodes(probe: ClusterProbe) -> tuple[RemoteVersion, tuple[Node, ...]]:
    return await probe.version(), await probe.nodes()


async def _answer_or_none(ask: Callable[[], Coroutine[Any, Any, T]], timeout_s: float) -> T | None:
    try:
        return await within(timeout_s, ask())
    except (ClusterError, asyncio.TimeoutError):
        return None
