"""The clock and the clusters as protocols. The docstrings are the contracts"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from ray_multicluster_scheduler.model.cluster import ClusterSpec, Node, RemoteVersion, Usage
from ray_multicluster_scheduler.model.execution import Inventory, InventoryRow, SessionDriver

#: A smaller difference means that the clock was read a little later, not that it was set.
CLOCK_STEP_S = 1.0


class Clock(Protocol):
    """Time as an argument, so that tests never sleep."""

    def now(self) -> float:
        """Return seconds since the epoch: for display and storage."""

    def monotonic(self) -> float:
        """Return seconds that never jump: for deadlines, back-off and durations."""

    def uptime(self) -> float:
        """Return seconds since the machine was booted: the same for all of its processes."""

    def boot(self) -> str:
        """Return an id of the boot that `uptime` counts from."""


class ClusterProbe(Protocol):
    """Information that a cluster reports about itself. Errors as for `ClusterConnection`."""

    async def version(self) -> RemoteVersion:
        """Return API and Ray version and the session name. Proves nothing about health."""

    async def python_version(self) -> str | None:
        """Return the Python version of the head, or None if this Ray does not report it."""

    async def nodes(self) -> tuple[Node, ...]:
        """Return all nodes, dead ones included."""

    async def usage(self) -> Usage:
        """Return totals, usage and pending demand; a part that the cluster does not report is None."""

    async def driver(self, job_id: str) -> SessionDriver | None:
        """Return the driver with this id of Ray; None: the cluster does not know it."""

    async def jobs(self, keep: Callable[[InventoryRow], bool] = ...) -> Inventory:
        """Return the entries of Ray's job list that `keep` selects, as `Executor.inventory` does."""


class ClusterPackages(Protocol):
    """The packages on one cluster. Errors as for `ClusterConnection`."""

    async def has_package(self, name: str) -> bool:
        """Tell whether `gcs://name` is there; if so, Ray keeps it for ten more minutes."""

    async def put_package(self, name: str, content: Path) -> None:
        """Upload a package file as `gcs://name`, replacing what is there."""


class ClusterConnection(Protocol):
    """All operations on one cluster, over its own connections.

    Every call ends within its deadline. Failures are `ClusterError`s: `ClusterUnreachable` means that
    nothing was executed; `ClusterTimeout` and `ClusterBadAnswer` mean that the outcome is unknown.
    """

    @property
    def spec(self) -> ClusterSpec:
        """The cluster's entry in clusters.yaml."""

    @property
    def probe(self) -> ClusterProbe:
        """Information that the cluster reports about itself."""

    @property
    def packages(self) -> ClusterPackages:
        """The packages that are there."""

    async def close(self) -> None:
        """Close the connections. Calls after it fail."""


#: By the names of the clusters.
Connections = Mapping[str, ClusterConnection]
