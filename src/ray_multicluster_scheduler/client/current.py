"""The scheduler that the plain functions of the API use, made when it is first needed.

It is one of this process, or, where an address says so, that of a server.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ray_multicluster_scheduler.client.in_job import JobProgram, warn_of_other_packages
from ray_multicluster_scheduler.client.remote import RemoteScheduler
from ray_multicluster_scheduler.client.server_address import named_server, server_at
from ray_multicluster_scheduler.config import find_config
from ray_multicluster_scheduler.config.find import expanded
from ray_multicluster_scheduler.config.older import ignored_settings
from ray_multicluster_scheduler.config.store_place import store_place
from ray_multicluster_scheduler.environment.env_vars import SUBMISSION_ID_VAR
from ray_multicluster_scheduler.errors import SchedulerNotStarted

if TYPE_CHECKING:
    from ray_multicluster_scheduler.runtime import Scheduler

log = logging.getLogger(__name__)

#: A scheduler of this process, or a server's.
Handle: TypeAlias = "Scheduler | RemoteScheduler"
#: The same, or what a program inside a job has of it.
AnyHandle: TypeAlias = "Handle | JobProgram"


class _Current:
    """The one mutable thing behind the functions of the API: which scheduler they mean."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.scheduler: AnyHandle | None = None
        #: The file that the program named. Another file would send its work to the wrong clusters.
        self.given: Path | None = None


_current = _Current()
#: Schedulers of the process that this one was forked from. They are kept because even closing a connection to
#: SQLite that the parent has opened would take the parent's locks away.
_inherited: list[AnyHandle] = []


def _begin_anew_in_a_fork() -> None:
    known, _current.lock = _current.scheduler, threading.RLock()
    if known is not None and not known.stopped:
        _inherited.append(known)
        _current.scheduler = known.anew()


os.register_at_fork(after_in_child=_begin_anew_in_a_fork)


def initialize_scheduler_environment(config_file_path: str | Path | None = None) -> AnyHandle:
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
            if _same(known, fresh):
                return known
            log.warning("using %s from now on, no longer %s", _name(fresh), _name(known))
            known.stop()
        _current.scheduler = fresh
    return fresh


def open_scheduler(config_file_path: str | Path | None = None) -> Handle:
    """Return the scheduler that the environment and the configuration mean; starts nothing.

    Raises `NoQueueHere` inside a job that was told no server.
    """
    return _with_queue(_open(config_file_path))


def _open(config_file_path: str | Path | None) -> AnyHandle:
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


def _with_queue(handle: AnyHandle) -> Handle:
    if isinstance(handle, JobProgram):
        raise handle.no_queue()
    return handle


def _same(one: AnyHandle, other: AnyHandle) -> bool:
    if isinstance(one, RemoteScheduler) or isinstance(other, RemoteScheduler):
        return _name(one) == _name(other)
    return one.config == other.config and one.directory == other.directory


def _name(scheduler: AnyHandle) -> str:
    return scheduler.server.url if isinstance(scheduler, RemoteScheduler) else str(scheduler.config.path)


def get_unified_scheduler() -> AnyHandle:
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


def working_scheduler() -> Handle:
    """Return the scheduler of this process, and make sure that open jobs are scheduled.

    Raises `NoQueueHere` inside a job that was told no server.
    """
    scheduler = _with_queue(get_unified_scheduler())
    keep_scheduled(scheduler)
    return scheduler


def keep_scheduled(scheduler: Handle, *, at_once: bool = False) -> None:
    """Make sure that open jobs are scheduled; where that cannot be, say why. The jobs are kept."""
    try:
        scheduler.ensure_scheduled(at_once=at_once)
    except SchedulerNotStarted as problem:
        log.warning("%s", problem)
