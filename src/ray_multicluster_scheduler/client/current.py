"""The scheduler that the plain functions of the API use, made when it is first needed.

It is one of this process, or, where an address says so, that of a server.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias

from ray_multicluster_scheduler.client.remote import RemoteScheduler
from ray_multicluster_scheduler.client.server_address import named_server, server_at
from ray_multicluster_scheduler.client.tracebacks import ends_at_the_caller
from ray_multicluster_scheduler.config import Config, find_config
from ray_multicluster_scheduler.config.find import expanded
from ray_multicluster_scheduler.config.load import ignored_settings
from ray_multicluster_scheduler.config.store_place import store_place
from ray_multicluster_scheduler.environment.options import SUBMISSION_ID_VAR
from ray_multicluster_scheduler.errors import NoQueueHere, SchedulerNotStarted, StoreError
from ray_multicluster_scheduler.packages.to_cluster import ROOT, others_on_path
from ray_multicluster_scheduler.version import VERSION

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.http import HttpService
    from ray_multicluster_scheduler.client.remote import ClusterLook
    from ray_multicluster_scheduler.packages.store import PackageStore
    from ray_multicluster_scheduler.service.service import LocalService
    from ray_multicluster_scheduler.service.views import ClusterReport, ProcessList
    from ray_multicluster_scheduler.tasks.submitter import TaskSubmitter

log = logging.getLogger(__name__)


class Client(Protocol):
    """A scheduler as programs use it: of this process (`Scheduler`), or of a server (`RemoteScheduler`)."""

    @property
    def service(self) -> LocalService | HttpService:
        """All calls that callers can make."""

    @property
    def packages(self) -> PackageStore:
        """Where directories of this machine are packed."""

    @property
    def tasks(self) -> TaskSubmitter:
        """Tasks and actors of this process."""

    @property
    def where(self) -> str:
        """Where its clusters are named, for messages."""

    @property
    def identity(self) -> object:
        """Equal for two that work with the same configuration, or with the same server."""

    @property
    def user(self) -> str:
        """The user whose jobs are submitted with it."""

    @property
    def stopped(self) -> bool:
        """Tell whether `stop` was called."""

    def anew(self) -> Client:
        """Return one with the same configuration, with nothing opened."""

    def start(self) -> None:
        """Make sure that open jobs are scheduled."""

    def ensure_scheduled(self, *, at_once: bool = False) -> None:
        """Make sure that open jobs are scheduled, looking once in a while only or `at_once`."""

    def stop(self) -> None:
        """Close what is open. Jobs go on; tasks and actors of this process end."""

    def cluster_look(self) -> AbstractAsyncContextManager[ClusterLook]:
        """Look at the clusters without scheduling."""

    def processes(self) -> ProcessList:
        """Return what runs inside the clusters, and which ones cannot be looked at."""

    def run_doctor(self, *, timeout_s: float) -> tuple[ClusterReport, ...]:
        """Examine every cluster, also with a short job that runs there."""

    def list_clusters(self) -> list[str]:
        """Return the names of the configured clusters."""

    def cluster_details(self) -> list[dict[str, Any]]:
        """Return every configured cluster with what was last seen of it."""


#: The same, or what a program inside a job has of it.
AnyClient: TypeAlias = "Client | JobProgram"


class _Current:
    """The one mutable thing behind the functions of the API: which scheduler they mean."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.scheduler: AnyClient | None = None
        #: The file that the program named. Another file would send its work to the wrong clusters.
        self.given: Path | None = None


_current = _Current()
#: Schedulers of the process that this one was forked from. They are kept because even closing a connection to
#: SQLite that the parent has opened would take the parent's locks away.
_inherited: list[AnyClient] = []


def _begin_anew_in_a_fork() -> None:
    known, _current.lock = _current.scheduler, threading.RLock()
    if known is not None and not known.stopped:
        _inherited.append(known)
        _current.scheduler = known.anew()


os.register_at_fork(after_in_child=_begin_anew_in_a_fork)


@ends_at_the_caller
def initialize_scheduler_environment(config_file_path: str | Path | None = None) -> AnyClient:
    """Read the configuration; jobs that are submitted from now on are scheduled by it.

    Where `RAY_MULTICLUSTER_ADDRESS` or `scheduler.address` in clusters.yaml names a server, that one
    schedules. Otherwise a process in the background does, which the first submitted job starts.

    Without a path it is the file that the program named before, and else the usual places are searched
    (docs/configuration.md). Returns a handle with `.stop()`; whatever is called after that uses the same
    configuration again. Calling it again with the same file returns the same handle; with another file, that
    one is used from now on. Inside a job nothing is opened or started until it is needed; without a server
    there is no queue in a job, only tasks and actors.

    Raises `ConfigNotFound` (a RuntimeError) or `ConfigInvalid` (a ValueError).
    """
    if config_file_path is not None:
        config_file_path = Path.cwd() / expanded(config_file_path)
    fresh = _open(config_file_path or _current.given)
    for sentence in ignored_settings(os.environ, home=expanded("~")):
        log.warning("%s", sentence)
    with _current.lock:
        _current.given = config_file_path or _current.given
        known = _current.scheduler
        if known is not None and not known.stopped:
            if known.identity == fresh.identity:
                return known
            log.warning("using %s from now on, no longer %s", fresh.where, known.where)
            known.stop()
        _current.scheduler = fresh
    return fresh


def open_scheduler(config_file_path: str | Path | None = None) -> Client:
    """Return the scheduler that the environment and the configuration mean; starts nothing.

    Raises `NoQueueHere` inside a job that was told no server.
    """
    return _with_queue(_open(config_file_path))


def _open(config_file_path: str | Path | None) -> AnyClient:
    environ = os.environ
    if SUBMISSION_ID_VAR in environ:
        warn_of_other_packages(environ)
    if server := named_server(environ, config_file_path):
        return RemoteScheduler(server, environ=environ, config_file_path=config_file_path)
    path = find_config(config_file_path, environ=environ, cwd=Path.cwd())
    from ray_multicluster_scheduler.config.load import load_config  # noqa: PLC0415 - see below

    config = load_config(path)
    if url := config.settings.address:
        server = server_at(url, named_by=f"`address` in {path}", environ=environ)
        return RemoteScheduler(server, environ=environ, config_file_path=path)
    if SUBMISSION_ID_VAR in environ:
        return JobProgram(config, environ=environ)
    from ray_multicluster_scheduler.runtime import Scheduler  # noqa: PLC0415 - a server's client needs no store

    return Scheduler(config, directory=store_place(config, environ).directory, environ=environ)


def _with_queue(handle: AnyClient) -> Client:
    if isinstance(handle, JobProgram):
        raise handle.no_queue()
    return handle


@ends_at_the_caller
def get_unified_scheduler() -> AnyClient:
    """Return the scheduler of this process, initialising it from the default places when needed.

    After `.stop()` it is a new one with the same configuration. Raises `ConfigNotFound`, a RuntimeError that
    lists where it looked, when there is no configuration.
    """
    with _current.lock:
        known = _current.scheduler
        if known is not None and not known.stopped:
            return known
        if known is not None:
            _current.scheduler = known = known.anew()
    return initialize_scheduler_environment() if known is None else known


def working_scheduler() -> Client:
    """Return the scheduler of this process, and make sure that open jobs are scheduled.

    Raises `NoQueueHere` inside a job that was told no server.
    """
    scheduler = _with_queue(get_unified_scheduler())
    keep_scheduled(scheduler)
    return scheduler


def keep_scheduled(scheduler: Client, *, at_once: bool = False) -> None:
    """Make sure that open jobs are scheduled; where that cannot be, say why. The jobs are kept."""
    try:
        scheduler.ensure_scheduled(at_once=at_once)
    except SchedulerNotStarted as problem:
        log.warning("%s", problem)


# The scheduler as a program inside a job sees it, where no server was named: tasks and actors, and no queue.


class JobProgram:
    """The handle of `initialize_scheduler_environment` inside a job; opens nothing before it is needed."""

    def __init__(self, config: Config, *, environ: Mapping[str, str]) -> None:
        self.config = config
        self._environ = environ
        self._lock = threading.Lock()
        self._tasks: TaskSubmitter | None = None
        self._stopped = False

    def anew(self) -> JobProgram:
        """Return one with the same configuration that has no connection yet."""
        return JobProgram(self.config, environ=self._environ)

    @property
    def directory(self) -> Path:
        """Where packages of this program are kept."""
        return store_place(self.config, self._environ).directory

    @property
    def tasks(self) -> TaskSubmitter:
        """Tasks and actors."""
        with self._lock:
            if self._stopped:
                raise StoreError("this scheduler was stopped; call initialize_scheduler_environment again")
            if self._tasks is None:
                from ray_multicluster_scheduler.tasks.submitter import TaskSubmitter  # noqa: PLC0415 - if ever

                self._tasks = TaskSubmitter.without_store(self.config, self._environ)
            return self._tasks

    @property
    def identity(self) -> object:
        """Equal for two that have the same configuration, and keep packages in the same place."""
        return self.config, self.directory

    @property
    def where(self) -> str:
        """Where its clusters are named, for messages."""
        return str(self.config.path)

    @property
    def service(self) -> NoReturn:
        """Raise `NoQueueHere`."""
        raise self.no_queue()

    def no_queue(self) -> NoQueueHere:
        """Return the error for a call that needs a queue of jobs."""
        return NoQueueHere(self._environ[SUBMISSION_ID_VAR])

    @property
    def stopped(self) -> bool:
        """Tell whether `stop` was called."""
        return self._stopped

    def start(self) -> None:
        """Start nothing: the scheduler that has sent this job goes on elsewhere."""

    def ensure_scheduled(self, *, at_once: bool = False) -> None:
        """Do nothing: the scheduler that has sent this job goes on elsewhere."""

    def stop(self) -> None:
        """End the tasks and actors of this program."""
        with self._lock:
            self._stopped = True
            tasks, self._tasks = self._tasks, None
        if tasks is not None:
            tasks.close()

    def list_clusters(self) -> list[str]:
        """Return the names of the configured clusters."""
        return [spec.name for spec in self.config.clusters]

    def cluster_details(self) -> NoReturn:
        """Raise `NoQueueHere`: what is known of the clusters, the scheduler elsewhere knows."""
        raise self.no_queue()


def warn_of_other_packages(environ: Mapping[str, str]) -> None:
    """Say if another package of our name lies on the path of this job: its author may think it is used."""
    for place in others_on_path(environ):
        log.warning(
            "ray_multicluster_scheduler %s is used, from %s, and not the one in %s: "
            "remove that line from PYTHONPATH in the cluster's runtime_env",
            VERSION,
            ROOT,
            place,
        )
