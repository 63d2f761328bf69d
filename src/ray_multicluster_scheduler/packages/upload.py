"""Upload packages to a cluster, right before it starts a job that needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from weakref import WeakValueDictionary

from ray_multicluster_scheduler.errors import PackageProblem
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.ports import ClusterPackages


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
