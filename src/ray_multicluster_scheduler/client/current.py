"""The scheduler that the plain functions of the API use, made when it is first needed."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

from ray_multicluster_scheduler.config.find import expanded
from ray_multicluster_scheduler.config.older import ignored_settings
from ray_multicluster_scheduler.runtime import Scheduler

log = logging.getLogger(__name__)

#: Set by us in the environment of every job.
INSIDE_A_JOB = "RAY_MULTICLUSTER_SUBMISSION_ID"


class _Current:
    """The one mutable thing behind the functions of the API: which scheduler they mean."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.scheduler: Scheduler | None = None


_current = _Current()
#: Schedulers of the process that this one was forked from. They are kept because even closing a connection to
#: SQLite that the parent has opened would take the parent's locks away.
_inherited: list[Scheduler] = []


def _begin_anew_in_a_fork() -> None:
    known, _current.lock, _current.scheduler = _current.scheduler, threading.RLock(), None
    if known is not None and not known.stopped:
        _inherited.append(known)
        _current.scheduler = known.anew()


os.register_at_fork(after_in_child=_begin_anew_in_a_fork)


def initialize_scheduler_environment(config_file_path: str | Path | None = None) -> Scheduler:
    """Read the configuration and start scheduling in this process.

    Without a path the usual places are searched (docs/configuration.md). Returns a handle with `.stop()`.
    Calling it again with the same file returns the same handle; with another file, that one is used from
    now on. Inside a job nothing is opened or started until it is needed.

    Raises `ConfigNotFound` (a RuntimeError) or `ConfigInvalid` (a ValueError).
    """
    fresh = Scheduler.open(config_file_path)
    for sentence in ignored_settings(os.environ, home=expanded("~")):
        log.warning("%s", sentence)
    with _current.lock:
        known = _current.scheduler
        if known is not None and not known.stopped:
            if known.config == fresh.config and known.directory == fresh.directory:
                return known
            log.warning("using %s from now on, no longer %s", fresh.config.path, known.config.path)
            known.stop()
        _current.scheduler = fresh
    if INSIDE_A_JOB not in os.environ:
        fresh.start()
    return fresh


def get_unified_scheduler() -> Scheduler:
    """Return the scheduler of this process, initialising it from the default places when needed.

    Raises `ConfigNotFound`, a RuntimeError that lists where it looked, when there is no configuration.
    """
    with _current.lock:
        known = _current.scheduler
    if known is None or known.stopped:
        return initialize_scheduler_environment()
    return known


def working_scheduler() -> Scheduler:
    """Return the scheduler of this process with its engine running."""
    scheduler = get_unified_scheduler()
    scheduler.start()
    return scheduler
