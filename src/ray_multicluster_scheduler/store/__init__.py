"""The durable job store: SQLAlchemy Core on SQLite, safe for several threads and processes."""

from ray_multicluster_scheduler.store.opening import open_memory_store, open_store
from ray_multicluster_scheduler.store.sql_store import SqlStore

__all__ = ["SqlStore", "open_memory_store", "open_store"]
