"""Versions, nodes and usage of a Ray cluster, read over HTTP."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from ray_multicluster_scheduler.errors import ClusterRefused
from ray_multicluster_scheduler.model.client_session import SessionDriver
from ray_multicluster_scheduler.model.cluster import Node, RemoteVersion, Usage
from ray_multicluster_scheduler.ray_api import parse
from ray_multicluster_scheduler.ray_api.http_client import HttpClient
from ray_multicluster_scheduler.ray_api.http_errors import translated
from ray_multicluster_scheduler.ray_api.jobs_executor import JOBS_PATH
from ray_multicluster_scheduler.ray_api.usage_text import parse_usage_text

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
