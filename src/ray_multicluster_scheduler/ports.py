"""The protocols between the engine and the outside world. The docstrings are the contracts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from ray_multicluster_scheduler.model.cluster import Node, Usage
from ray_multicluster_scheduler.model.remote import RemoteJob, RemoteSubmit, RemoteVersion


class Clock(Protocol):
    """Time as an argument, so that tests never sleep."""

    def now(self) -> float:
        """Return seconds since the epoch: for what people read and what is stored."""

    def monotonic(self) -> float:
        """Return seconds that never jump: for deadlines, back-off and durations."""


class RayApi(Protocol):
    """One Ray cluster over HTTP.

    Every call ends within its deadline. Failures are `ClusterError`s: `ClusterUnreachable` means that
    nothing was executed; `ClusterTimeout` and `ClusterBadAnswer` mean that the outcome is unknown.
    """

    async def version(self) -> RemoteVersion:
        """Return API and Ray version and the session name. Proves nothing about health."""

    async def python_version(self) -> str | None:
        """Return the Python version of the head, or None where this Ray does not tell."""

    async def nodes(self) -> tuple[Node, ...]:
        """Return all nodes, dead ones included."""

    async def usage(self) -> Usage:
        """Return totals, use and pending demand; a part that the cluster does not tell is None."""

    async def submit_job(self, request: RemoteSubmit) -> None:
        """Start a job under the id of the request.

        `RemoteJobExists` when the id is taken. Safe to repeat: Ray refuses a second job with one id.
        """

    async def get_job(self, submission_id: str) -> RemoteJob:
        """Return one submission, or raise `RemoteJobNotFound`."""

    async def list_jobs(self) -> tuple[RemoteJob, ...]:
        """Return all submissions that the cluster remembers; plain drivers are left out."""

    async def stop_job(self, submission_id: str) -> bool:
        """Ask Ray to stop a job (SIGTERM, 3 s, SIGKILL); False when it had ended. Asynchronous."""

    async def delete_job(self, submission_id: str) -> None:
        """Forget a job that has ended; `ClusterRefused` when it has not."""

    async def job_logs(self, submission_id: str) -> str:
        """Return the whole log so far."""

    def tail_job_logs(self, submission_id: str) -> AsyncIterator[str]:
        """Yield the log from its start in pieces while it grows.

        It may end while the job still runs: look at the status, and call again.
        """

    async def has_package(self, name: str) -> bool:
        """Tell whether `gcs://name` is there; if so, Ray keeps it for ten more minutes."""

    async def put_package(self, name: str, content: Path) -> None:
        """Upload a package file as `gcs://name`, replacing what is there."""

    async def close(self) -> None:
        """Close connections. Calls after it fail."""
