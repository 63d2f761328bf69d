"""The packages of this scheduler, as the service offers them to submitting clients of this machine."""

from __future__ import annotations

from pathlib import Path

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.packages.store import PackageStore


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
