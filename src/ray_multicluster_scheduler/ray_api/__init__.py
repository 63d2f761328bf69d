"""The only code that speaks HTTP to Ray."""

from ray_multicluster_scheduler.ray_api.http_connection import HttpConnection, open_connection

__all__ = ["HttpConnection", "open_connection"]
