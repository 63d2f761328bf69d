"""Local code for clusters: packed at submit, kept by content, uploaded right before a job starts."""

from ray_multicluster_scheduler.packages.runtime_env import localise, package_names
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.packages.to_cluster import Uploader

__all__ = ["PackageStore", "Uploader", "localise", "package_names"]
