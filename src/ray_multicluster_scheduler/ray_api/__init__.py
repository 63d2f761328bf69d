"""The only code that speaks HTTP to Ray."""

from ray_multicluster_scheduler.ray_api.client import HttpRayApi, open_ray_api

__all__ = ["HttpRayApi", "open_ray_api"]
