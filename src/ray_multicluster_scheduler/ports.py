"""The clock and the clusters as protocols. The docstrings are the contracts. The store: `store_ports`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol

from ray_multicluster_scheduler.model.client_session import SessionDriver
from ray_multicluster_scheduler.model.cluster import Node, RemoteVersion, Usage
from ray_multicluster_scheduler.model.execution import Inventory, InventoryRow, Sighting, StartRequest

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


class Executor(Protocol):
    """One way to run attempts on one cluster. Errors as for `ClusterConnection`.

    An attempt is identified by its `remote_id`, which we choose before it is started.
    """

    @property
    def name(self) -> str:
        """The name of the executor, such as "ray-jobs"; every attempt records it."""

    async def start(self, request: StartRequest) -> None:
        """Start an attempt under the id of the request.

        `RemoteJobExists` when the id is taken. Safe to repeat: an id is never started twice.
        """

    async def get(self, remote_id: str) -> Sighting:
        """Return one attempt, or raise `RemoteJobNotFound`."""

    async def observe(self, remote_ids: Collection[str]) -> Mapping[str, Sighting]:
        """Return those of these attempts that the cluster has, by their ids.

        An id that is missing in the answer is not on the cluster. An attempt with this id may belong to
        another scheduler: see `is_ours`. For frequent use: it reads in the cheapest way for the cluster.
        """

    async def inventory(self, keep: Callable[[InventoryRow], bool] = ...) -> Inventory:
        """Return the attempts that `keep` selects, including those of others; by default all of them.

        The cost grows with the number of jobs that the cluster remembers, so not for frequent use. Only
        selected entries are read in full. `keep` is called once for each entry, in the order of the list,
        also for connected programs (`is_driver`), which are never returned.
        """

    async def stop(self, remote_id: str) -> bool:
        """Request the stop of an attempt (SIGTERM, 3 s, SIGKILL) without waiting; False if it had ended."""

    async def delete(self, remote_id: str) -> None:
        """Delete an attempt that has ended; `ClusterRefused` if it has not."""

    async def log(self, remote_id: str, *, last_bytes: int = ...) -> str:
        """Return the log so far, at most its `last_bytes`; a note says what is missing (`model.kept_log`).

        If reading breaks off, the part that was read is returned, with a note as well.
        """

    def follow_log(self, remote_id: str) -> AsyncIterator[str]:
        """Yield the log from its start in pieces while it grows.

        It may end while the attempt still runs: check the status and call again.
        """


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
    def probe(self) -> ClusterProbe:
        """Information that the cluster reports about itself."""

    @property
    def executor(self) -> Executor:
        """The executor of attempts there."""

    @property
    def packages(self) -> ClusterPackages:
        """The packages that are there."""

    async def close(self) -> None:
        """Close the connections. Calls after it fail."""


#: By the names of the clusters.
Connections = Mapping[str, ClusterConnection]
