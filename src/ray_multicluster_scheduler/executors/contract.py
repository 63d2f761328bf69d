"""What an executor is. One that is not in this package implements this and registers under `ENTRY_POINTS`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ray_multicluster_scheduler.model.execution import (
    Capabilities,
    Inventory,
    InventoryRow,
    Sighting,
    StartRequest,
)
from ray_multicluster_scheduler.model.result import LeftResult
from ray_multicluster_scheduler.ports import Clock, ClusterConnection

if TYPE_CHECKING:
    from ray_multicluster_scheduler.store import Store

__all__ = ["ENTRY_POINTS", "Capabilities", "Executor", "ExecutorKind", "Site"]

#: The entry point group of executors that other packages bring. A name leads to an `ExecutorKind`.
ENTRY_POINTS = "raymc.executors"


class Executor(Protocol):
    """One way to run attempts on one cluster. Errors as for `ports.ClusterConnection`.

    An attempt is identified by its `remote_id`, which we choose before it is started.
    """

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

        The cost grows with the number of attempts that the cluster remembers, so not for frequent use. Only
        selected entries are read in full. `keep` is called once for each entry, in the order of the list,
        also for connected programs (`is_driver`), which are never returned.
        """

    async def stop(self, remote_id: str) -> bool:
        """Request the stop of an attempt (SIGTERM, 3 s, SIGKILL) without waiting; False if it had ended."""

    async def delete(self, remote_id: str) -> None:
        """Delete an attempt that has ended; `ClusterRefused` if it has not."""

    async def log(self, remote_id: str, *, last_bytes: int = ...) -> str:
        """Return the log so far, at most its `last_bytes`; a note says what is missing (`model/job.py`).

        If reading breaks off, the part that was read is returned, with a note as well.
        """

    async def result_place(self, remote_id: str, *, session_name: str | None) -> str | None:
        """Return the path of the file in which an attempt may leave its result, as its program sees it.

        None: its cluster has no such place. `session_name` is that of the head, as far as it is known: the
        place may be another one in the next session. Only called with `leaves_result`, before the start.
        """

    async def result(self, remote_id: str) -> LeftResult | None:
        """Return what an attempt that has ended left at `result_place`, or None.

        Of what is larger than `MAX_FILE_BYTES`, only that is said. Only called with `leaves_result`.
        """

    def follow_log(self, remote_id: str) -> AsyncIterator[str]:
        """Yield the log from its start in pieces while it grows.

        It may end while the attempt still runs: check the status and call again.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The cluster that an executor works on, and what it may use here."""

    connection: ClusterConnection
    store: Store
    #: `await offload(function, ...)` runs a call of the store outside of the event loop.
    offload: Callable[..., Awaitable[Any]]
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorKind:
    """An executor before it has a cluster."""

    #: Every attempt records it.
    name: str
    can: Capabilities
    #: Called once for each connection to a cluster.
    open: Callable[[Site], Executor]
