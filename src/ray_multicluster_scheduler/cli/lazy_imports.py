"""Names that are slow to import, because the store, HTTP or the engine comes with them: loaded on first use.

Commands reach these names through this module, as in `lazy_imports.open_scheduler(config)`. Shell completion
needs only the options of a command, and so waits for none of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ray_multicluster_scheduler.cli.console import held

if TYPE_CHECKING:
    from ray_multicluster_scheduler.background import OPEN_STATES, ControlFiles, ask_to_end, start_scheduler
    from ray_multicluster_scheduler.client.current import keep_scheduled, open_scheduler
    from ray_multicluster_scheduler.client.http import HttpService
    from ray_multicluster_scheduler.client.packing import handed_over, script_here
    from ray_multicluster_scheduler.client.remote import RemoteScheduler
    from ray_multicluster_scheduler.client.server_address import named_server, server_at, server_in
    from ray_multicluster_scheduler.client.waiting import LAST_LOG_LINES, how_it_failed
    from ray_multicluster_scheduler.config import find_config, load_config
    from ray_multicluster_scheduler.config.find import state_dir, this_user
    from ray_multicluster_scheduler.maintenance import back_up, examine, move, restore
    from ray_multicluster_scheduler.runtime import Scheduler
    from ray_multicluster_scheduler.scheduler_process.process import run_in_foreground
    from ray_multicluster_scheduler.server.serve import ServedScheduler, running_servers, serve
    from ray_multicluster_scheduler.server.server_options import ServerOptions
    from ray_multicluster_scheduler.service.query import JobQuery, all_events, all_jobs
    from ray_multicluster_scheduler.service.request import JobRequest

__all__ = [
    "LAST_LOG_LINES",
    "OPEN_STATES",
    "ControlFiles",
    "HttpService",
    "JobQuery",
    "JobRequest",
    "RemoteScheduler",
    "Scheduler",
    "ServedScheduler",
    "ServerOptions",
    "all_events",
    "all_jobs",
    "ask_to_end",
    "back_up",
    "examine",
    "find_config",
    "handed_over",
    "how_it_failed",
    "keep_scheduled",
    "load_config",
    "move",
    "named_server",
    "open_scheduler",
    "restore",
    "run_in_foreground",
    "running_servers",
    "script_here",
    "serve",
    "server_at",
    "server_in",
    "start_scheduler",
    "state_dir",
    "this_user",
]

_HOMES = {
    "ControlFiles": "background",
    "HttpService": "client.http",
    "JobQuery": "service.query",
    "JobRequest": "service.request",
    "LAST_LOG_LINES": "client.waiting",
    "OPEN_STATES": "background",
    "RemoteScheduler": "client.remote",
    "Scheduler": "runtime",
    "ServedScheduler": "server.serve",
    "ServerOptions": "server.server_options",
    "all_events": "service.query",
    "all_jobs": "service.query",
    "ask_to_end": "background",
    "back_up": "maintenance",
    "examine": "maintenance",
    "find_config": "config",
    "handed_over": "client.packing",
    "how_it_failed": "client.waiting",
    "keep_scheduled": "client.current",
    "load_config": "config",
    "move": "maintenance",
    "named_server": "client.server_address",
    "open_scheduler": "client.current",
    "restore": "maintenance",
    "run_in_foreground": "scheduler_process.process",
    "running_servers": "server.serve",
    "script_here": "client.packing",
    "serve": "server.serve",
    "server_at": "client.server_address",
    "server_in": "client.server_address",
    "start_scheduler": "background",
    "state_dir": "config.find",
    "this_user": "config.find",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with held():
        home = importlib.import_module(f"ray_multicluster_scheduler.{_HOMES[name]}")
    return getattr(home, name)
