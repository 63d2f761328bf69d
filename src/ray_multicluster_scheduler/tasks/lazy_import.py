"""Imports Ray, and modules that need it, on first use: importing Ray takes a second or more."""

from __future__ import annotations

import importlib
from typing import Any

from ray_multicluster_scheduler.config.installed import check_ray


def ray() -> Any:
    """Return the `ray` module; if it is not installed, raise an error that says how to install it."""
    check_ray("tasks and actors")
    return importlib.import_module("ray")


def wire(module: str) -> Any:
    """Return a module of `tasks.wire`."""
    return importlib.import_module(f"ray_multicluster_scheduler.tasks.wire.{module}")


def module(name: str) -> Any:
    """Return any other module."""
    return importlib.import_module(name)
