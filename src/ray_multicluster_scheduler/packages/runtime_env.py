"""Make an environment independent of the machine that it was written on.

After `localise`, nothing in it refers to files of the submitter: directories are packages in our package
store, and requirement and conda files are replaced by their content.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray_multicluster_scheduler.environment.compose import normalise
from ray_multicluster_scheduler.errors import PackageProblem
from ray_multicluster_scheduler.packages.pack import Progress
from ray_multicluster_scheduler.packages.requirement_files import local_path, reader
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.packages.tree import Source

#: Not packed unless the user brings it back (`"excludes": ["!venv"]`). Ray's own client has this list.
WORKING_DIR_EXCLUDES = (".git", ".venv", "venv", "__pycache__")
#: Ray has no list for modules. `venv` may be part of a module; these two never are.
PY_MODULE_EXCLUDES = (".git", "__pycache__")

_GCS = "gcs://"


def localise(
    runtime_env: Mapping[str, Any] | None,
    packages: PackageStore,
    *,
    cwd: Path,
    use_gitignore: bool = True,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return the environment in canonical form, with local directories and files replaced.

    Relative paths start at `cwd`, and `~` is the submitter's home. URIs stay as they are. `excludes` is
    applied here and removed. `use_gitignore` is False if the user has set
    `RAY_RUNTIME_ENV_IGNORE_GITIGNORE=1`.
    """
    env = normalise(runtime_env, where="runtime_env", read=reader(cwd))
    packer = _Packer(
        packages=packages,
        cwd=cwd,
        excludes=tuple(env.pop("excludes", ())),
        use_gitignore=use_gitignore,
        progress=progress,
    )
    if "working_dir" in env:
        env["working_dir"] = packer.working_dir(env["working_dir"])
    if "py_modules" in env:
        env["py_modules"] = [packer.py_module(location) for location in env["py_modules"]]
    return env


def package_names(runtime_env: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the packages that a cluster must have before it can set up this environment."""
    locations = (runtime_env.get("working_dir"), *(runtime_env.get("py_modules") or ()))
    names = (at.removeprefix(_GCS) for at in locations if isinstance(at, str) and at.startswith(_GCS))
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Packer:
    """Turns locations that a user wrote into URIs that work on every cluster."""

    packages: PackageStore
    cwd: Path
    excludes: tuple[str, ...]
    use_gitignore: bool
    progress: Progress | None

    def working_dir(self, location: str) -> str:
        if _is_uri(location):
            return location
        path = local_path(self.cwd, location)
        if not path.is_file():
            return self._tree(path, WORKING_DIR_EXCLUDES)
        if path.suffix != ".zip":
            raise PackageProblem(f"working_dir: {path} is a file; give its directory, or a .zip of it")
        return _GCS + self.packages.add_archive(path)

    def py_module(self, location: str) -> str:
        if _is_uri(location):
            return location
        path = local_path(self.cwd, location)
        if path.is_file() and path.suffix in {".zip", ".whl"}:
            return _GCS + self.packages.add_archive(path)
        return self._tree(path, PY_MODULE_EXCLUDES, include_parent=path.is_dir())

    def _tree(self, root: Path, defaults: tuple[str, ...], *, include_parent: bool = False) -> str:
        source = Source(
            root=root,
            excludes=(*defaults, *self.excludes),
            include_parent=include_parent,
            use_gitignore=self.use_gitignore,
        )
        return _GCS + self.packages.add_tree(source, progress=self.progress)


def _is_uri(location: str) -> bool:
    return "://" in location
