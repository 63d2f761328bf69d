"""A scheduler that runs elsewhere: `raymc serve`, asked over HTTP. Nothing of it runs in this process."""

from __future__ import annotations

import asyncio
import atexit
import getpass
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ray_multicluster_scheduler.client.http import HttpService
from ray_multicluster_scheduler.client.server_address import ServerAddress
from ray_multicluster_scheduler.config.find import USER_VARIABLE, find_config, home_dir
from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.service.api import Service
from ray_multicluster_scheduler.service.views import ClusterView

if TYPE_CHECKING:
    from ray_multicluster_scheduler.packages.store import PackageStore
    from ray_multicluster_scheduler.service.views import ClusterReport, ProcessList
    from ray_multicluster_scheduler.tasks.submitter import TaskSubmitter


# Views of the clusters without scheduling: probed from here, or asked from a server.


#: How often a server is asked what it sees.
ASK_EVERY_S = 1.0


class ClusterLook(Protocol):
    """Looks at all clusters: once with `step`, or again and again with `run`."""

    @property
    def interval_s(self) -> float:
        """How often there is something new to see."""

    async def step(self) -> None:
        """Look at every cluster once."""

    async def run(self) -> None:
        """Go on looking until cancelled."""

    def views(self) -> tuple[ClusterView, ...]:
        """Return what was last seen of every cluster."""


class PublishedLook:
    """What the leader sees, by asking a server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._seen: tuple[ClusterView, ...] = ()

    @property
    def interval_s(self) -> float:
        """How often there is something new to see."""
        return ASK_EVERY_S

    async def step(self) -> None:
        """Ask once."""
        self._seen = await asyncio.to_thread(self._service.clusters)

    async def run(self) -> None:
        """Ask again and again, until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(self.interval_s)

    def views(self) -> tuple[ClusterView, ...]:
        """Return what was last seen of every cluster."""
        return self._seen


class RemoteScheduler:
    """The handle of `initialize_scheduler_environment` where a server schedules.

    Jobs and clusters are asked for over HTTP. Tasks and actors are calls of this process to Ray: they need
    Ray and a clusters.yaml here, as without a server.
    """

    def __init__(
        self,
        server: ServerAddress,
        *,
        environ: Mapping[str, str],
        config_file_path: str | Path | None = None,
    ) -> None:
        self.server = server
        self._environ = environ
        self._config_file_path = config_file_path
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._service = HttpService(server, user=getpass.getuser())
        self._packages: PackageStore | None = None
        self._tasks: TaskSubmitter | None = None
        self._stopped = False
        atexit.register(self.stop)

    def anew(self) -> RemoteScheduler:
        """Return one for the same server, with the same file for tasks, that has no connection yet."""
        return RemoteScheduler(self.server, environ=self._environ, config_file_path=self._config_file_path)

    @property
    def service(self) -> HttpService:
        """The service: all calls that callers can make."""
        self._check_usable()
        return self._service

    @property
    def packages(self) -> PackageStore:
        """Where directories of this machine are packed before they are sent to the server."""
        self._check_usable()
        with self._lock:
            if self._packages is None:
                from ray_multicluster_scheduler.packages.store import KEEP_S, PackageStore  # noqa: PLC0415 - if ever

                self._packages = PackageStore(home_dir(self._environ) / "packages")
                # No job needs these: the server has its own. They save packing a directory once more.
                self._packages.collect((), older_than_s=KEEP_S)
            return self._packages

    @property
    def tasks(self) -> TaskSubmitter:
        """Tasks and actors of this process, by the clusters.yaml that is found here."""
        self._check_usable()
        with self._lock:
            if self._tasks is None:
                from ray_multicluster_scheduler.config.load import load_config  # noqa: PLC0415 - jobs need none of it
                from ray_multicluster_scheduler.tasks.submitter import TaskSubmitter  # noqa: PLC0415

                path = find_config(self._config_file_path, environ=self._environ, cwd=Path.cwd())
                self._config_file_path = path  # from now on, and anew
                self._tasks = TaskSubmitter.without_store(load_config(path), self._environ)
            return self._tasks

    @property
    def where(self) -> str:
        """Where its clusters are named, for messages."""
        return self.server.url

    @property
    def identity(self) -> object:
        """Equal for two that ask the same server."""
        return self.server.url

    @asynccontextmanager
    async def cluster_look(self) -> AsyncIterator[PublishedLook]:
        """Look at the clusters as the server sees them."""
        yield PublishedLook(self.service)

    def processes(self) -> ProcessList:
        """Return what runs inside the clusters, and which ones the server cannot look at."""
        return self.service.processes()

    def run_doctor(self, *, timeout_s: float) -> tuple[ClusterReport, ...]:
        """Let the server examine every cluster, also with a short job that runs there."""
        return self.service.run_doctor(timeout_s=timeout_s)

    @property
    def stopped(self) -> bool:
        """Tell whether `stop` was called."""
        return self._stopped

    def start(self) -> None:
        """Start nothing: the server schedules."""
        self._check_usable()

    def ensure_scheduled(self, *, at_once: bool = False) -> None:
        """Do nothing: the server schedules, and its answers tell what is wrong with it."""

    def stop(self) -> None:
        """Close the connections to the server. Jobs go on; tasks and actors of this process end."""
        if self._process != os.getpid():
            return  # in a forked child: the connections are the parent's
        with self._lock:
            self._stopped = True
            atexit.unregister(self.stop)
            self._service.close()
            if self._tasks is not None:
                self._tasks.close()

    @property
    def user(self) -> str:
        """Whose jobs are submitted with it: the token's user, unless somebody was named."""
        return self._environ.get(USER_VARIABLE) or self.service.me().user

    def list_clusters(self) -> list[str]:
        """Return the names of the configured clusters; `cluster_details` tells more of each."""
        return [cluster.name for cluster in self.service.clusters()]

    def cluster_details(self) -> list[dict[str, Any]]:
        """Return every configured cluster with what was last seen of it; unknown values are None."""
        return [cluster.model_dump(mode="json") for cluster in self.service.clusters()]

    def _check_usable(self) -> None:
        again = "call initialize_scheduler_environment again"
        if self._process != os.getpid():
            raise StoreError(f"this scheduler belongs to the process that was forked; {again} in this one")
        if self._stopped:
            raise StoreError(f"this scheduler was stopped; {again}")
