"""Where the schedulers of one configuration share their packages: the setting `scheduler.packages`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ray_multicluster_scheduler.packages.database_packages import DatabasePackages
from ray_multicluster_scheduler.packages.fsspec_packages import FsspecPackages
from ray_multicluster_scheduler.packages.shared_packages import SharedPackages
from ray_multicluster_scheduler.packages.store import PackageStore

if TYPE_CHECKING:
    from ray_multicluster_scheduler.store import Store

DATABASE = "database"


def open_packages(directory: Path, place: str | None, store: Store) -> PackageStore:
    """Return the packages in `directory`, shared as the setting says."""
    return PackageStore(directory, shared=shared_packages(place, store))


def shared_packages(place: str | None, store: Store) -> SharedPackages | None:
    """Return the shared place that the setting names; None: packages stay in a directory of this machine."""
    if place is None:
        # The default. A store in files is used by one machine only, so there is nobody to share with.
        return None
    return DatabasePackages(store.packages) if place == DATABASE else FsspecPackages(place)
