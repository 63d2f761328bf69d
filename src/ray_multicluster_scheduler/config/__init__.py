"""clusters.yaml: finding it, reading it, and the checked records that it becomes."""

import importlib
from typing import TYPE_CHECKING, Any

from ray_multicluster_scheduler.config.find import find_config, home_dir

if TYPE_CHECKING:
    from ray_multicluster_scheduler.config.load import Config, load_config, parse_config
    from ray_multicluster_scheduler.config.schema import ClusterEntry, Settings

__all__ = ["ClusterEntry", "Config", "Settings", "find_config", "home_dir", "load_config", "parse_config"]

#: Imported on first use, because these need pydantic. Finding a file does not.
_HOMES = {
    "ClusterEntry": "schema",
    "Config": "load",
    "Settings": "schema",
    "load_config": "load",
    "parse_config": "load",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
