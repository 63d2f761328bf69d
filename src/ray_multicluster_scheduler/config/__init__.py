"""clusters.yaml: where it is found, what it may say, and the checked records that come out of it."""

from ray_multicluster_scheduler.config.find import home_dir

__all__ = ["home_dir"]
