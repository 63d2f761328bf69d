"""One reliable probe of one cluster, within one deadline.

`/api/version` still answers for a minute after the cluster's GCS died, so a probe succeeds only if the
cluster also returns its nodes and answers a query for a job. The query is for a job that does not exist,
because a list of all jobs takes longer the more jobs the cluster remembers. It is read now and then only, for
the claims of other schedulers. Usage, the Python version and the
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
from ray_multicluster_scheduler.core.claims import OtherClaims
from ray_multicluster_scheduler.errors import ClusterError, ClusterTimeout, RemoteJobNotFound
from ray_multicluster_scheduler.model.cluster import Node, RemoteVersion, Usage
from ray_multicluster_scheduler.model.execution import AttemptStatus, Inventory, InventoryRow
from ray_multicluster_scheduler.model.resources import Resources, plus
from ray_multicluster_scheduler.ports import Clock, ClusterConnection, ClusterProbe, Executor

T = TypeVar("T")

#: The id of no job: Ray looks it up in the GCS and answers that it does not exist.
PROBE_JOB_ID = "raymc-probe"
#: A probe does not wait longer for others' claims: a sweep, which has more time, finds them a little later.
CLAIMS_WITHIN_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The answers of a cluster to one probe."""

    version: RemoteVersion
    nodes: tuple[Node, ...]
    #: The running jobs; None if they were not requested or not returned in time.
    inventory: Inventory | None
    #: What the jobs of other schedulers claim; None if it was not requested or not returned in time.
    claimed_by_others: Resources | None
    #: How long the list took.
    list_s: float
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
    name: str,
    cluster: ClusterConnection,
    *,
    clock: Clock,
    deadline_s: float,
    lists_jobs: bool = False,
    others: OtherClaims | None = None,
) -> Reading:
    """Probe a cluster; raise `ClusterError` if version, nodes or jobs fail or are late.

    `others`: add up the claims of other schedulers, if the list of all jobs can be read quickly.
    """
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
    listed, list_began = None, clock.monotonic()
    if lists_jobs or others is not None:
        left_s = ends_at - asyncio.get_running_loop().time()
        listed = await _answer_or_none(
            lambda: cluster.executor.inventory(_seen_by(others, lists_jobs=lists_jobs)),
            left_s if lists_jobs else min(left_s, CLAIMS_WITHIN_S),
        )
    return Reading(
        version=version,
        nodes=nodes,
        inventory=listed if lists_jobs else None,
        claimed_by_others=None if others is None or listed is None else others.total,
        list_s=clock.monotonic() - list_began,
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


def _seen_by(others: OtherClaims | None, *, lists_jobs: bool) -> Callable[[InventoryRow], bool]:
    """Return a filter that shows each row to `others`, and selects the running jobs if they are listed."""

    def keep(row: InventoryRow) -> bool:
        if others is not None:
            others.see(row)
        return lists_jobs and row.status is AttemptStatus.RUNNING

    return keep


async def _version_and_nodes(probe: ClusterProbe) -> tuple[RemoteVersion, tuple[Node, ...]]:
    return await probe.version(), await probe.nodes()


async def _answer_or_none(ask: Callable[[], Coroutine[Any, Any, T]], timeout_s: float) -> T | None:
    try:
        return await within(timeout_s, ask())
    except (ClusterError, asyncio.TimeoutError):
        return None
