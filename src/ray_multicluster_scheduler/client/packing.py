"""Pack what a job needs of this machine before it is submitted: only the submitter's files may be read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ray_multicluster_scheduler.errors import InvalidEntrypoint
from ray_multicluster_scheduler.packages.pack import Progress
from ray_multicluster_scheduler.packages.runtime_env import localise
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.policy.paths import relative_script
from ray_multicluster_scheduler.service.request import JobRequest


def packed(
    request: JobRequest, packages: PackageStore, *, cwd: Path | None = None, progress: Progress | None = None
) -> JobRequest:
    """Return the request with its local directories and files replaced by packages and their content.

    Relative paths start at `cwd`, the current directory by default.
    """
    start = Path.cwd() if cwd is None else cwd
    env = request.runtime_env
    if not (isinstance(env, Mapping) and env.get("working_dir")):
        _check_script(request.entrypoint, start)
    if not env:
        return request
    return request.replaced(runtime_env=localise(env, packages, cwd=start, progress=progress))


def _check_script(entrypoint: str, cwd: Path) -> None:
    if word := relative_script(entrypoint):
        right = entrypoint.replace(word, str((cwd / word).resolve()), 1)
        raise InvalidEntrypoint(
            f"{word!r} in the entrypoint is a relative path, and no cluster knows where it starts; write "
            f"{right!r}, or give the job a runtime_env with a working_dir"
        )
