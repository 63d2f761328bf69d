"""The durable job store: SQLAlchemy Core on SQLite or PostgreSQL, for several threads and processes."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray_multicluster_scheduler.store.open_place import open_at
    from ray_multicluster_scheduler.store.sqlite.opening import open_memory_store, open_store
    from ray_multicluster_scheduler.store.store import Store

__all__ = ["Store", "open_at", "open_memory_store", "open_store"]

#: Imported on first use: shell completion, and clients of a server, do without SQLAlchemy. That is why the
#: service and the packages import these for annotations only.
_HOMES = {
    "Store": "store",
    "open_at": "open_place",
    "open_memory_store": "sqlite.opening",
    "open_store": "sqlite.opening",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
