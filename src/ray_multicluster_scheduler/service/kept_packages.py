"""The packages of this machine, as the service offers them to submitting clients."""

from __future__ import annotations

from pathlib import Path

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.packages.store import PackageStore


class KeptPackages:
    """The packages that are kept on this machine."""

    def __init__(self, packages: PackageStore) -> None:
        self._packages = packages

    def has(self, name: str) -> bool:
        """Tell whether a package is kept."""
        return self._packages.path(name) is not None

    def put(self, name: str, content: Path) -> None:
        """Keep a package file; its content decides its name."""
        kept = self._packages.add_archive(content)
        if kept != name:
            raise InvalidRequest(f"package {name!r} has another content than its name says ({kept})")
