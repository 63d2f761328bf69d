"""Imports Ray, and modules that need it, on first use: importing Ray takes a second or more."""

from __future__ import annotations

import importlib
import logging
from functools import cache
from typing import Any

from packaging.version import Version

from ray_multicluster_scheduler.config.installed import NEWEST_RAY_TESTED, check_ray, ray_version

log = logging.getLogger(__name__)


def ray() -> Any:
    """Return the `ray` module; if it is not installed, raise an error that says how to install it."""
    check_ray("tasks and actors", extra="tasks")
    _warn_of_newer_ray(ray_version())
    return importlib.import_module("ray")


@cache
def _warn_of_newer_ray(version: str | None) -> None:
    """Warn once where Ray is newer than what tasks and actors were tested with."""
    if version is not None and Version(version).release[:2] > NEWEST_RAY_TESTED:
        tested = ".".join(map(str, NEWEST_RAY_TESTED))
        log.warning(
            "tasks and actors were tested with Ray up to %s, and this is Ray %s: if a call fails, "
            "use the older one. Jobs are not affected",
            tested,
            version,
        )


def wire(module: str) -> Any:
    """Return a module of `tasks.wire`."""
    return importlib.import_module(f"ray_multicluster_scheduler.tasks.wire.{module}")


def module(name: str) -> Any:
    """Return any other module."""
    return importlib.import_module(name)
