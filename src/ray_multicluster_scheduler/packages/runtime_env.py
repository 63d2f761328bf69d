"""Make an environment independent of the machine that it was written on.

After `localise`, nothing in it refers to files of the submitter: directories are packages in our package
store, and requirement and conda files are replaced by their content.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.environment.compose import normalise
from ray_multicluster_scheduler.environment.options import ReadFile
from ray_multicluster_scheduler.errors import ConfigInvalid, InvalidRuntimeEnv, PackageProblem
from ray_multicluster_scheduler.packages.pack import Progress
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.packages.tree import Source

# Read requirement and conda files at submit, because no cluster can see the files of the submitter.


#: URLs and variables of the node (`${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}`) are for pip on the cluster.
_LOCAL = r"(?![^\n]*(?:://|\$\{))"
_INCLUDE = re.compile(rf"^[ \t]*(?:-r|--requirement){_LOCAL}[ \t=]*(?P<file>[^\s#]+)[^\n]*$", re.MULTILINE)
#: On the cluster, pip would look for these beside its copy of the file.
_STAYS_HERE = re.compile(
    rf"^[ \t]*(?:(?:-c|--constraint|-e|--editable){_LOCAL}|\.{{1,2}}/)[^\n]*", re.MULTILINE
)


def local_path(cwd: Path, name: str) -> Path:
    """Return the absolute path that a user means by `name`, with `~` and `..` resolved."""
    home_expanded = os.path.expanduser(name)  # noqa: PTH111 - Path raises if there is no such user
    return Path(os.path.normpath(cwd / home_expanded))


def reader(cwd: Path) -> ReadFile:
    """Return a function that reads files for `normalise`: YAML parsed, requirements with their includes."""

    def read(name: str) -> object:
        path = local_path(cwd, name)
        return read_yaml(path) if path.suffix in {".yaml", ".yml"} else _requirements(path, ())

    return read


def read_yaml(path: Path) -> object:
    """Read a YAML file as safely as clusters.yaml: no tags, a limit on aliases, no key twice."""
    text = _text(path)
    try:
        from ray_multicluster_scheduler.config.document import read_document  # noqa: PLC0415 - YAML is rare

        document = read_document(text, path)
    except ConfigInvalid as invalid:
        raise InvalidRuntimeEnv(f"{path} is not valid YAML: {'; '.join(invalid.problems)}") from None
    if document.problems:
        raise InvalidRuntimeEnv(f"{path}: {'; '.join(map(str, document.problems))}")
    return document.value


def _requirements(path: Path, within: tuple[Path, ...]) -> str:
    """Return the text of a requirements file with `-r other.txt` replaced by the content of that file."""
    if path in within:
        raise InvalidRuntimeEnv(f"{path} includes itself, by way of {within[-1]}")
    text = _text(path)
    if local := _STAYS_HERE.search(text):
        raise InvalidRuntimeEnv(
            f"{path}: {local[0].strip()!r} names a file of this machine, which no cluster can see; pin the "
            "versions themselves, and send local code with working_dir or py_modules"
        )
    return _INCLUDE.sub(
        lambda found: _requirements(local_path(path.parent, found["file"]), (*within, path)), text
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as problem:
        raise InvalidRuntimeEnv(f"{path} cannot be read: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise InvalidRuntimeEnv(f"{path} is not UTF-8 text") from problem


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


# The environments that clusters.yaml gives to clusters, made independent of this machine.


def with_packed_environments(config: Config, packages: PackageStore) -> Config:
    """Pack the local directories in the environments of clusters, like those of jobs."""
    folder = config.path.resolve().parent
    clusters = tuple(
        replace(spec, runtime_env=localise(spec.runtime_env, packages, cwd=folder))
        for spec in config.clusters
    )
    return replace(config, clusters=clusters)
