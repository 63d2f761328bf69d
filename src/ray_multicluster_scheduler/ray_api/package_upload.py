"""Package upload to a Ray cluster over HTTP."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from ray_multicluster_scheduler.errors import ClusterRefused
from ray_multicluster_scheduler.ray_api.http_client import HttpClient
from ray_multicluster_scheduler.ray_api.http_errors import translated

UPLOAD_TIMEOUT_S = 300.0


class HttpClusterPackages:
    """`ports.ClusterPackages` over HTTP."""

    def __init__(self, http: HttpClient, *, upload_timeout_s: float = UPLOAD_TIMEOUT_S) -> None:
        self._http = http
        self._upload_timeout_s = upload_timeout_s

    async def has_package(self, name: str) -> bool:
        """See `ports.ClusterPackages`."""
        try:
            with translated(self._http.spec):
                await self._http.call("GET", _package_path(name))
        except ClusterRefused as error:
            if error.status == 404 and error.body.endswith("does not exist"):
                return False
            raise
        return True

    async def put_package(self, name: str, content: Path) -> None:
        """See `ports.ClusterPackages`."""
        # Not opened in a thread: a caller that is cancelled meanwhile would never get the file to close it.
        with content.open("rb") as file, translated(self._http.spec):
            await self._http.call("PUT", _package_path(name), data=file, timeout_s=self._upload_timeout_s)


def _package_path(name: str) -> str:
    return f"/api/packages/gcs/{quote(name, safe='')}"
