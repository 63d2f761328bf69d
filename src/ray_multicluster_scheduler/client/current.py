"""The scheduler that the plain functions of the API use, made when it is first needed.

It is one of this process, or, where an address says so, that of a server.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ray_multicluster_scheduler.client.remote import RemoteScheduler
from ray_multicluster_scheduler.client.server_address import server_at, server_in
from ray_multicluster_scheduler.config import find_config
from ray_multicluster_scheduler.config.find import expanded
from ray_multicluster_scheduler.config.older import ignored_settings
from ray_multicluster_scheduler.config.store_place import store_place

if TYPE_CHECKING:
    from ray_multicluster_scheduler.runtime import Scheduler

log = logging.getLogger(__name__)

#: A scheduler of this process, or a server's.
Handle: TypeAlias = "Scheduler | RemoteScheduler"

#: Set by us in the environment of every job.
INSIDE_A_JOB = "RAY_MULTICLUSTER_SUBMISSION_ID"


class _Current:
    """The one mutable thing behind the functions of the API: which scheduler they mean."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.scheduler: Handle | None = None


_current = _Current()
#: Schedulers of the process that this one was forked from. They are kept because even closing a connection to
#: SQLite that the parent has opened would take the parent's locks away.
_inherited: list[Handle] = []


def _begin_anew_in_a_fork() -> None:
    known, _current.lock, _current.scheduler = _current.scheduler, threading.RLock(), None
    if known is not None and not known.stopped:
        _inherited.append(known)
        _current.scheduler = known.anew()


os.register_at_fork(after_in_child=_begin_anew_in_a_fork)


def initialize_scheduler_environment(config_file_path: str | Path | None = None) -> Handle:
    """Read the configuration and start scheduling in this process.

    Where `RAY_MULTICLUSTER_ADDRESS` or `scheduler.address` in clusters.yaml names a server, that one
    schedules, and nothing is started here.

    Without a path the usual places are searched (docs/configuration.md). Returns a handle with `.stop()`.
    Calling it again with the same file returns the same handle; with another file, that one is used from
    now on. Inside a job nothing is opened or started until it is needed.

    Raises `ConfigNotFound` (a RuntimeError) or `ConfigInvalid` (a ValueError).
    """
    fresh = open_scheduler(config_file_path)
    for sentence in ignored_settings(os.environ, home=expanded("~")):
        log.warning("%s", sentence)
    with _current.lock:
        known = _current.scheduler
        if known is not None and not known.stopped:
            if _same(known, fresh):
                return known
            log.warning("using %s from now on, no longer %s", _name(fresh), _name(known))
            known.stop()
        _current.scheduler = fresh
    if INSIDE_A_JOB not in os.environ:
        fresh.start()
    return fresh


def open_scheduler(config_file_path: str | Path | None = None) -> Handle:
    """Return the scheduler that the environment and the configuration mean; starts nothing."""
    environ = os.environ
    if server := server_in(environ):
        return RemoteScheduler(server, environ=environ, config_file_path=config_file_path)
    path = find_config(config_file_path, environ=environ, cwd=Path.cwd())
    from ray_multicluster_scheduler.config.load import load_config  # noqa: PLC0415 - see below

    config = load_config(path)
    if url := config.settings.address:
        server = server_at(url, named_by=f"`address` in {path}", environ=environ)
        return RemoteScheduler(server, environ=environ, config_file_path=config_file_path)
    from ray_multicluster_scheduler.runtime import Scheduler  # noqa: PLC0415 - a server's client needs no store

    return Scheduler(config, directory=store_place(config, environ).directory, environ=environ)


def _same(one: Handle, other: Handle) -> bool:
    if isinstance(one, RemoteScheduler) or isinstance(other, RemoteScheduler):
        return _name(one) == _name(other)
    return one.config == other.config and one.directory == other.directory


def _name(scheduler: Handle) -> str:
    return scheduler.server.url if isinstance(scheduler, RemoteScheduler) else str(scheduler.config.path)


def get_unified_scheduler() -> Handle:
    """Return the scheduler of this process, initialising it from the default places when needed.

    Raises `ConfigNotFound`, a RuntimeError that lists where it looked, when there is no configuration.
    """
    with _current.lock:
        known = _current.scheduler
    if known is None or known.stopped:
        return initialize_scheduler_environment()
    return known


def working_scheduler() -> Handle:
    """Return the scheduler of this process with its engine running."""
    scheduler = get_unified_scheduler()
    scheduler.start()
    return scheduler
