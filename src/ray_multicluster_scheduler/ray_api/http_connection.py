"""`ports.ClusterConnection` to a Ray cluster over HTTP, opened from its entry in clusters.yaml."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ray_multicluster_scheduler.errors import ClusterRefused
from ray_multicluster_scheduler.model.client_session import SessionDriver
from ray_multicluster_scheduler.model.cluster import ClusterSpec, Node, RemoteVersion, Usage
from ray_multicluster_scheduler.model.execution import Inventory, InventoryRow, Sighting
from ray_multicluster_scheduler.ray_api import parse
from ray_multicluster_scheduler.ray_api.http_client import JOBS_PATH, REQUEST_TIMEOUT_S, HttpClient
from ray_multicluster_scheduler.ray_api.http_errors import translated
from ray_multicluster_scheduler.ray_api.parse import parse_usage_text
from ray_multicluster_scheduler.ray_api.state_api import ClusterState

# Versions, nodes and usage of a Ray cluster, read over HTTP.


#: The limit of Ray's state API; its default of 100 would hide further nodes.
MAX_NODES = 10_000


class HttpClusterProbe:
    """`ports.ClusterProbe` over HTTP."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    async def version(self) -> RemoteVersion:
        """See `ports.ClusterProbe`."""
        with translated(self._http.spec):
            return parse.version(parse.json_object(await self._http.call("GET", "/api/version")))

    async def python_version(self) -> str | None:
        """See `ports.ClusterProbe`."""
        try:
            with translated(self._http.spec):
                answer = await self._http.call("GET", "/api/v0/cluster_metadata")
                return parse.python_version(parse.json_object(answer))
        except ClusterRefused as error:
            if error.status == 404:
                return None
            raise

    async def nodes(self) -> tuple[Node, ...]:
        """See `ports.ClusterProbe`."""
        with translated(self._http.spec):
            answer = await self._http.call("GET", f"/api/v0/nodes?limit={MAX_NODES}")
            return parse.nodes(parse.json_object(answer))

    async def usage(self) -> Usage:
        """See `ports.ClusterProbe`."""
        deadline = asyncio.get_running_loop().time() + self._http.request_timeout_s
        with translated(self._http.spec):
            answer = parse.json_object(await self._http.call("GET", "/api/cluster_status"))
            if (usage := parse.usage(answer)) is not None:
                return usage
            left_s = max(deadline - asyncio.get_running_loop().time(), 0.001)
            raw = await self._http.call("GET", "/api/cluster_status?format=1", timeout_s=left_s)
            return parse_usage_text(parse.status_text(parse.json_object(raw)))

    async def driver(self, job_id: str) -> SessionDriver | None:
        """See `ports.ClusterProbe`."""
        try:
            with translated(self._http.spec):
                answer = await self._http.call("GET", f"{JOBS_PATH}{quote(job_id, safe='')}")
                return parse.driver(parse.json_object(answer))
        except ClusterRefused as error:
            if error.status == 404:
                return None
            raise

    async def jobs(self, keep: Callable[[InventoryRow], bool] = lambda _: True) -> Inventory:
        """See `ports.ClusterProbe`."""

        def read(row: Mapping[str, Any]) -> Sighting | None:
            entry = parse.inventory_row(row)
            is_kept = entry is not None and keep(entry) and not entry.is_driver
            return parse.sighting(row) if is_kept else None

        with translated(self._http.spec):
            sightings, remembered = await self._http.rows(JOBS_PATH, read)
        return Inventory(sightings=tuple(sightings), remembered=remembered)


# Package upload to a Ray cluster over HTTP.


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


def open_connection(
    spec: ClusterSpec,
    environ: Mapping[str, str],
    *,
    request_timeout_s: float = REQUEST_TIMEOUT_S,
    upload_timeout_s: float = UPLOAD_TIMEOUT_S,
) -> HttpConnection:
    """Return the connection to a cluster, with its token from the environment variables in `environ`.

    A missing variable raises no error here, because it must not prevent the use of other clusters. Calls to a
    cluster that needs the token fail with `ClusterAuthFailed`, which names the variable.
    """
    token = environ.get(spec.auth_token_env, "").strip() if spec.auth_token_env else ""
    return HttpConnection(
        spec,
        token=token or None,
        request_timeout_s=request_timeout_s,
        upload_timeout_s=upload_timeout_s,
    )


class HttpConnection:
    """`ports.ClusterConnection` over HTTP. Its parts share one client, which connects with the first call."""

    def __init__(
        self,
        spec: ClusterSpec,
        *,
        token: str | None = None,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        upload_timeout_s: float = UPLOAD_TIMEOUT_S,
    ) -> None:
        self.spec = spec
        #: Specific to Ray, and so not part of the port: the client of its REST API, and what runs inside.
        self.http = HttpClient(spec, token=token, request_timeout_s=request_timeout_s)
        self.state = ClusterState(self.http)
        self.probe = HttpClusterProbe(self.http)
        self.packages = HttpClusterPackages(self.http, upload_timeout_s=upload_timeout_s)

    def __repr__(self) -> str:
        return f"HttpConnection({self.spec.name!r})"

    async def __aenter__(self) -> HttpConnection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """See `ports.ClusterConnection`."""
        await self.http.close()
