"""The environments that clusters.yaml gives to clusters, made independent of this machine."""

from __future__ import annotations

from dataclasses import replace

from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.packages.runtime_env import localise
from ray_multicluster_scheduler.packages.store import PackageStore


def with_packed_environments(config: Config, packages: PackageStore) -> Config:
    """Pack the local directories in the environments of clusters, like those of jobs."""
    folder = config.path.resolve().parent
    clusters = tuple(
        replace(spec, runtime_env=localise(spec.runtime_env, packages, cwd=folder))
        for spec in config.clusters
    )
    return replace(config, clusters=clusters)
