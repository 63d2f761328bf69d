"""Pack what a job needs of this machine before it is submitted: only the submitter's files may be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ray_multicluster_scheduler.client.transport import Call, Transport, part
from ray_multicluster_scheduler.environment.paths import relative_script
from ray_multicluster_scheduler.errors import InvalidEntrypoint
from ray_multicluster_scheduler.service.request import JobRequest

if TYPE_CHECKING:
    from ray_multicluster_scheduler.packages.pack import Progress
    from ray_multicluster_scheduler.packages.store import PackageStore
    from ray_multicluster_scheduler.service.api import Service


class Packer(Protocol):
    """Packs on this machine and hands the packages over: to a scheduler of this process, or to a server."""

    @property
    def packages(self) -> PackageStore:
        """Where directories of this machine are packed."""

    @property
    def service(self) -> Service:
        """The service that gets the packages."""


def handed_over(
    request: JobRequest, scheduler: Packer, *, cwd: Path | None = None, progress: Progress | None = None
) -> JobRequest:
    """Return the request packed, with its packages where the scheduler has them."""
    if not request.runtime_env:
        return request
    from ray_multicluster_scheduler.packages.runtime_env import package_names  # noqa: PLC0415 - see `packed`

    ready = packed(request, scheduler.packages, cwd=cwd, progress=progress)
    kept = scheduler.service.packages
    for name in package_names(ready.runtime_env or {}):
        content = scheduler.packages.path(name)
        if content is not None and not kept.has(name):
            kept.put(name, content)
    return ready


def packed(
    request: JobRequest, packages: PackageStore, *, cwd: Path | None = None, progress: Progress | None = None
) -> JobRequest:
    """Return the request with its local directories and files replaced by packages and their content.

    Relative paths start at `cwd`, the current directory by default.
    """
    if not request.runtime_env:
        return request
    # A client of a server, which may only look, does not pay for what packs.
    from ray_multicluster_scheduler.packages.runtime_env import localise  # noqa: PLC0415

    start = Path.cwd() if cwd is None else cwd
    return request.replaced(runtime_env=localise(request.runtime_env, packages, cwd=start, progress=progress))


def script_here(request: JobRequest) -> str | None:
    """Return the script below the current directory that a job names and does not bring along, or None."""
    if (request.runtime_env or {}).get("working_dir") or not (word := relative_script(request.entrypoint)):
        return None
    found = Path(word).resolve()
    return word if found.is_file() and found.is_relative_to(Path.cwd().resolve()) else None


@contextmanager
def telling_of_working_dir(requests: Iterable[JobRequest]) -> Iterator[None]:
    """Add to the refusal of a relative path what only this machine knows: that the script lies here."""
    try:
        yield
    except InvalidEntrypoint as refused:
        if script := next(filter(None, map(script_here, requests)), None):
            raise InvalidEntrypoint(
                f"{refused}; {script!r} lies in this directory, which runtime_env={{'working_dir': '.'}} "
                "sends along"
            ) from None
        raise


# The packages that a server keeps, over HTTP.


class ServerPackages:
    """The packages that the server keeps."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def has(self, name: str) -> bool:
        """Tell whether a package is kept."""
        return self._transport.exists(Call(method="GET", path=_package(name)))

    def put(self, name: str, content: Path) -> None:
        """Keep a package file. Its name is derived from its content."""
        kind = {"Content-Type": "application/octet-stream"}
        self._transport.ask(Call(method="PUT", path=_package(name), body=content, headers=kind))


def _package(name: str) -> str:
    return f"/api/packages/gcs/{part(name)}"
