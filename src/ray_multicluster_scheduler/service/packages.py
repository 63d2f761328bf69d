"""The packages that a caller has: those of this machine, or what this user has uploaded."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.packages.runtime_env import package_names
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.packages.uploads import Uploads
from ray_multicluster_scheduler.service.request import JobRequest

if TYPE_CHECKING:
    from ray_multicluster_scheduler.store import Store

# The packages of this scheduler, as the service offers them to submitting clients of this machine.


class KeptPackages:
    """All packages that are kept."""

    def __init__(self, packages: PackageStore) -> None:
        self._packages = packages

    def has(self, name: str) -> bool:
        """Tell whether a package is kept; if so, it is kept for another while."""
        return self._packages.ask_for(name)

    def put(self, name: str, content: Path) -> None:
        """Keep a package file; its content decides its name."""
        kept = self._packages.add_archive(content)
        if kept != name:
            raise InvalidRequest(f"package {name!r} has another content than its name says ({kept})")


# Packages of a caller that is another process: what this user has uploaded, and nothing else.


_OPEN = tuple(state for state in JobState if state not in FINAL)


class UploadedPackages:
    """The uploads of one user."""

    def __init__(self, uploads: Uploads, packages: PackageStore, user: str) -> None:
        self._uploads = uploads
        self._packages = packages
        self._user = user

    def has(self, name: str) -> bool:
        """Tell whether the user has uploaded this."""
        return self._uploads.content(self._user, name) is not None

    def put(self, name: str, content: Path) -> None:
        """Keep a package file. Its name is derived from its content."""
        with self._packages.receive() as file, content.open("rb") as source:
            shutil.copyfileobj(source, file)
            kept = self.keep(name, file)
        if kept != name:
            raise InvalidRequest(f"package {name!r} has another content than its name says ({kept})")

    def receive(self) -> AbstractContextManager[IO[bytes]]:
        """Return a temporary file to write an upload to."""
        return self._packages.receive()

    def keep(self, name: str, file: IO[bytes]) -> str:
        """Keep what was written to a file of `receive`; return the name that its content gets."""
        return self._uploads.keep(self._user, name, file)

    def localised(self, request: JobRequest) -> JobRequest:
        """Return a request whose packages are called by their content; refuse what was not uploaded."""
        if not request.runtime_env:
            return request
        return request.replaced(runtime_env=self._uploads.localised(self._user, request.runtime_env))


def needed_packages(store: Store) -> frozenset[str]:
    """Return the packages that jobs which have not ended refer to."""
    jobs = store.jobs.list(states=_OPEN)
    return frozenset(name for job in jobs for name in package_names(job.spec.runtime_env))
