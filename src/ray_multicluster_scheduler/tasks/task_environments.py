"""The environment of tasks and actors per cluster: the cluster's own, overridden by the program's."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.environment.compose import compose, normalise
from ray_multicluster_scheduler.environment.env_vars import (
    ATTEMPT_VAR,
    CLUSTER_VAR,
    OLDER_CLUSTER_VAR,
    PACKAGE_VAR,
    RESERVED,
    SUBMISSION_ID_VAR,
)
from ray_multicluster_scheduler.environment.overlay import for_ray_client, has_overlay, remove_overlay
from ray_multicluster_scheduler.errors import PackageProblem
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.packages.overlay import with_overlay_code
from ray_multicluster_scheduler.packages.own_package import (
    takes_own_package,
    with_own_package,
    without_own_package,
)
from ray_multicluster_scheduler.packages.runtime_env import localise, package_names
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.ports import ClusterPackages


def program_env(composed: Mapping[str, Any], cluster_env: Mapping[str, Any]) -> dict[str, Any]:
    """Return the program's part of a composed environment: all that its cluster does not set."""
    original = remove_overlay(without_own_package(composed))
    env = {**original, "env_vars": _without(original.get("env_vars") or {}, RESERVED)}
    full = normalise(
        _without(env, {"_ray_release", "_ray_commit", "_inject_current_ray"}), where="this program"
    )
    cluster = normalise(cluster_env, where="its cluster")
    own = {option: value for option, value in full.items() if value != cluster.get(option)}
    if "env_vars" in own:
        theirs = cluster.get("env_vars", {})
        own["env_vars"] = {n: value for n, value in own["env_vars"].items() if value != theirs.get(n)}
    if isinstance(own.get("pip"), list) and isinstance(cluster.get("pip"), list):
        own["pip"] = [package for package in own["pip"] if package not in cluster["pip"]]
    return {option: value for option, value in own.items() if value}


class Environments:
    """Composes environments and uploads their packages to the clusters."""

    def __init__(
        self,
        config: Config,
        packages: Path,
        environ: Mapping[str, str],
        read_at_home: Callable[[str], bytes | None],
    ) -> None:
        self._folder = config.path.resolve().parent
        self._packages = packages
        self._identity = {n: environ[n] for n in (SUBMISSION_ID_VAR, ATTEMPT_VAR) if n in environ}
        #: The package that travels with this job, and so with its tasks and actors.
        self._own_package = environ.get(PACKAGE_VAR)
        self._read_at_home = read_at_home

    def compose(self, spec: ClusterSpec, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the runtime_env of a Ray Client session; raise `InvalidRequest` if there is none."""
        cluster_env = spec.runtime_env
        if any("://" not in str(at) for at in _locations(cluster_env)):
            cluster_env = localise(cluster_env, PackageStore(self._packages), cwd=self._folder)
        identity = {CLUSTER_VAR: spec.name, OLDER_CLUSTER_VAR: spec.name, **self._identity}
        composed = compose(cluster_env, own, identity=identity, overlay=True)
        if has_overlay(composed):
            composed = with_overlay_code(composed, PackageStore(self._packages))
        if self._own_package is not None and spec.ship_package and takes_own_package(composed):
            composed = with_own_package(composed, self._own_package)
        return for_ray_client(composed)

    async def upload_packages(self, runtime_env: Mapping[str, Any], cluster: ClusterPackages) -> None:
        """Upload the packages of an environment that a cluster lacks, from the local store or from home."""
        for name in package_names(runtime_env):
            if not await cluster.has_package(name):
                await self._upload(name, cluster)

    async def _upload(self, name: str, cluster: ClusterPackages) -> None:
        local_copy = PackageStore(self._packages).path(name) if self._packages.is_dir() else None
        if local_copy is not None:
            await cluster.put_package(name, local_copy)
            return
        content = self._read_at_home(name)
        if content is None:
            raise PackageProblem(
                f"the package gcs://{name} is neither kept here nor on the home cluster any more; "
                "submit again from the machine that has the directory"
            )
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "package"
            copy.write_bytes(content)
            await cluster.put_package(name, copy)


def _locations(runtime_env: Mapping[str, Any]) -> list[Any]:
    locations = [runtime_env.get("working_dir"), *(runtime_env.get("py_modules") or ())]
    return [location for location in locations if location]


def _without(mapping: Mapping[str, Any], names: frozenset[str] | set[str]) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name not in names}
