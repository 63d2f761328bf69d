"""`from src.engines.ray.runtime import init_ray` is `from ray_multicluster_scheduler import init_ray`."""

from src import advice

try:
    from ray_multicluster_scheduler import init_ray
except ImportError as problem:
    raise ImportError(advice(problem)) from None

__all__ = ["init_ray"]
