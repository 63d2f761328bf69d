"""One truthful look at one cluster: everything is asked at once, within one deadline.

`/api/version` answers for a minute after the cluster's control process died, so a look counts only when
the nodes and the job list came back too. Usage and the Python version are welcome but not needed: without
them the cluster works, and the value is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

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
    #: Until the needed answers were complete.
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
    """Ask for everything at once; raise `ClusterError` when version, nodes or job list fail or are late."""
    started, ends_at = clock.monotonic(), asyncio.get_running_loop().time() + deadline_s
    version = asyncio.ensure_future(api.version())
    nodes = asyncio.ensure_future(api.nodes())
    jobs = asyncio.ensure_future(api.list_jobs())
    usage = asyncio.ensure_future(api.usage())
    python_version = asyncio.ensure_future(api.python_version())
    needed = {"version": version, "nodes": nodes, "job list": jobs}
    try:
        await asyncio.wait(needed.values(), timeout=deadline_s, return_when=asyncio.FIRST_EXCEPTION)
        latency_s = clock.monotonic() - started
        _raise_first_problem(name, needed, deadline_s)
        left_s = ends_at - asyncio.get_running_loop().time()
        await asyncio.wait([usage, python_version], timeout=max(0.0, left_s))
    finally:
        await _put_away([*needed.values(), usage, python_version])
    return Reading(
        version=version.result(),
        nodes=nodes.result(),
        jobs=jobs.result(),
        usage=_result_or_none(usage),
        python_version=_result_or_none(python_version),
        latency_s=latency_s,
    )


def _raise_first_problem(name: str, needed: Mapping[str, asyncio.Future[Any]], deadline_s: float) -> None:
    for answer in needed.values():
        if answer.done():
            answer.result()
    late = [what for what, answer in needed.items() if not answer.done()]
    if late:
        raise ClusterTimeout(name, f"no answer within {deadline_s:g} s: {', '.join(late)}")


async def _put_away(answers: Iterable[asyncio.Future[Any]]) -> None:
    """End what still runs, so that no request outlives its probe."""
    waiting = list(answers)
    for answer in waiting:
        answer.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def _result_or_none(answer: asyncio.Future[T]) -> T | None:
    if answer.cancelled():
        return None
    try:
        return answer.result()
    except ClusterError:
        return None
