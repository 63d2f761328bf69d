"""What goes to a cluster with a job: its packages, this package, and the code of the overlay.

This package travels with every job, so that nothing has to be installed on a cluster. A job's program may
call `submit_task`, `submit_actor` or, through a server, `submit_job`. These need nothing but what
`ray[default]` brings. Ray puts `py_modules` before PYTHONPATH, so the job imports the version that sent it,
whatever else of this name lies on its path.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from ray_multicluster_scheduler.environment.compose import IMAGES, has_overlay
from ray_multicluster_scheduler.environment.options import PACKAGE_NAME, PACKAGE_VAR
from ray_multicluster_scheduler.errors import PackageProblem
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.packages.tree import Source
from ray_multicluster_scheduler.ports import ClusterPackages

ROOT = Path(__file__).parents[1]
#: What schedules, serves or shows jobs: no program inside a job imports it.
_NOT_SHIPPED = (
    "/cli/",
    "/dashboard/",
    "/engine/",
    "/inspection/",
    "/local/",
    "/maintenance.py",
    "/ray_client/",
    "/runtime.py",
    "/server/",
    "/store/",
    "/testing/",
)
SHIPPED = Source(
    root=ROOT, excludes=("__pycache__", "*.md", *_NOT_SHIPPED), include_parent=True, use_gitignore=False
)


class OwnPackage:
    """This package in a package store. It is packed once; `collect` may have removed it since."""

    def __init__(self, packages: PackageStore) -> None:
        self._packages = packages
        self._name: str | None = None

    def name(self) -> str:
        """Return its name in the store, where it is kept from now on."""
        if self._name is None or self._packages.path(self._name) is None:
            self._name = self._packages.add_tree(SHIPPED)
        return self._name


def takes_own_package(runtime_env: Mapping[str, Any]) -> bool:
    """Tell whether Ray lets the package go along: a container image brings all of its own code."""
    return not any(image in runtime_env for image in IMAGES)


def with_own_package(runtime_env: Mapping[str, Any], uri: str) -> dict[str, Any]:
    """Return an environment in which this package, at `uri`, comes before all other code."""
    others = [each for each in runtime_env.get("py_modules", ()) if each != uri]
    env_vars = {**runtime_env.get("env_vars", {}), PACKAGE_VAR: uri}
    return {**runtime_env, "py_modules": [uri, *others], "env_vars": env_vars}


def without_own_package(runtime_env: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment as it was before `with_own_package`."""
    env = dict(runtime_env)
    env_vars = dict(env.get("env_vars") or {})
    uri = env_vars.pop(PACKAGE_VAR, None)
    if uri is not None:
        env["env_vars"] = env_vars
        env["py_modules"] = [each for each in env.get("py_modules", ()) if each != uri]
    return env


def others_on_path(environ: Mapping[str, str]) -> list[str]:
    """Return the directories of PYTHONPATH that hold another package of this name."""
    places = [Path(entry) for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return [str(place) for place in places if _holds_other(place / PACKAGE_NAME)]


def _holds_other(package: Path) -> bool:
    return (package / "__init__.py").is_file() and package.resolve() != ROOT.resolve()


#: The code for the nodes. `sitecustomize` is for the program of a job, the other module for workers too.
NODE_CODE = Path(__file__).parent / "overlay" / "node"


def with_overlay_code(runtime_env: Mapping[str, Any], packages: PackageStore) -> dict[str, Any]:
    """Return an environment with the code that its overlay needs; without an overlay, return it unchanged."""
    if not has_overlay(runtime_env):
        return dict(runtime_env)
    source = Source(root=NODE_CODE, excludes=("__pycache__",), use_gitignore=False)
    module = f"gcs://{packages.add_tree(source)}"
    others = [each for each in runtime_env.get("py_modules", ()) if each != module]
    return {**runtime_env, "py_modules": [*others, module]}


class Uploader:
    """Uploads to one cluster. Each package is uploaded once, however many jobs need it at the same time.

    It remembers nothing: a restarted cluster has lost its packages, and asking for them costs little. It has
    to ask anyway, because the request makes Ray keep the package for ten more minutes.
    """

    def __init__(self, cluster: ClusterPackages, packages: PackageStore) -> None:
        self._cluster = cluster
        self._packages = packages
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def ensure(self, names: Iterable[str]) -> int:
        """Make sure that the cluster has these packages; return how many bytes had to be sent."""
        sent = 0
        for name in names:
            # Waiters keep the lock referenced; the entry disappears with the last of them.
            lock = self._locks.setdefault(name, asyncio.Lock())
            async with lock:
                sent += await self._ensure(name)
        return sent

    async def _ensure(self, name: str) -> int:
        if await self._cluster.has_package(name):
            return 0
        content = await asyncio.to_thread(self._packages.path, name)  # it may have to be fetched
        if content is None:
            raise PackageProblem(
                f"the package gcs://{name} is neither on the cluster nor kept here; "
                "submit the job again from the directory that it was made of"
            )
        await self._cluster.put_package(name, content)
        return content.stat().st_size
