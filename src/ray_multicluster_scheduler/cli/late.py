"""What takes long to import (the store, HTTP, the engine), each imported when a command first uses it.

The modules of the commands import these names from here, so that a TAB, which needs the options of a command
only, waits for none of them: `late.Scheduler.open(config)`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ray_multicluster_scheduler.cli.signals import held

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.packing import packed
    from ray_multicluster_scheduler.config import find_config, load_config
    from ray_multicluster_scheduler.engine.doctor import examine
    from ray_multicluster_scheduler.engine.watch import ClusterWatch
    from ray_multicluster_scheduler.ray_api.client import HttpRayApi, open_ray_api
    from ray_multicluster_scheduler.ray_api.state import open_state_api
    from ray_multicluster_scheduler.runtime import Scheduler, this_user
    from ray_multicluster_scheduler.server.options import ServerOptions
    from ray_multicluster_scheduler.server.serve import serve
    from ray_multicluster_scheduler.service.jobs import LAST_LOG_LINES
    from ray_multicluster_scheduler.service.request import JobRequest
    from ray_multicluster_scheduler.service.retention import keep_rules, prune_all
    from ray_multicluster_scheduler.service.showing import job_row
    from ray_multicluster_scheduler.service.tail import begin_tail
    from ray_multicluster_scheduler.store import open_store

__all__ = [
    "LAST_LOG_LINES",
    "ClusterWatch",
    "HttpRayApi",
    "JobRequest",
    "Scheduler",
    "ServerOptions",
    "begin_tail",
    "examine",
    "find_config",
    "job_row",
    "keep_rules",
    "load_config",
    "open_ray_api",
    "open_state_api",
    "open_store",
    "packed",
    "prune_all",
    "serve",
    "this_user",
]

_HOMES = {
    "LAST_LOG_LINES": "service.jobs",
    "ClusterWatch": "engine.watch",
    "HttpRayApi": "ray_api.client",
    "JobRequest": "service.request",
    "Scheduler": "runtime",
    "ServerOptions": "server.options",
    "begin_tail": "service.tail",
    "examine": "engine.doctor",
    "find_config": "config",
    "job_row": "service.showing",
    "keep_rules": "service.retention",
    "load_config": "config",
    "open_ray_api": "ray_api.client",
    "open_state_api": "ray_api.state",
    "open_store": "store",
    "packed": "client.packing",
    "prune_all": "service.retention",
    "serve": "server.serve",
    "this_user": "runtime",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with held():
        home = importlib.import_module(f"ray_multicluster_scheduler.{_HOMES[name]}")
    return getattr(home, name)
