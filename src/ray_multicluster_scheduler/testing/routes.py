"""The HTTP interface of a fake cluster: paths, statuses and messages of Ray's dashboard."""

from __future__ import annotations

import asyncio
from typing import Protocol

from aiohttp import web

from ray_multicluster_scheduler.testing import dashboard_responses
from ray_multicluster_scheduler.testing.fake_cluster import PACKAGE_SCHEME, FakeCluster, Refused, traceback_of
from ray_multicluster_scheduler.testing.submission import parse_submission

#: Ray looks for new log lines once a second; tests have less time.
TAIL_POLL_S = 0.02
#: Ray refuses larger bodies with 413.
MAX_BODY_BYTES = 100 * 2**20


class Dashboard(Protocol):
    """What the routes need to know about the fake that they belong to."""

    cluster: FakeCluster
    autoscaler_v2: bool
    ray_version: str
    python_version: str
    api_version: str | None

    async def awake(self) -> None:
        """Return when the process is not stopped."""

    def tails_are_held(self) -> bool:
        """Tell whether tailed logs are silent now."""


class Routes:
    """The handlers, bound to one fake."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard

    @property
    def _cluster(self) -> FakeCluster:
        return self._dashboard.cluster

    def table(self) -> list[web.RouteDef]:
        """Return all routes."""
        job, package = "/api/jobs/{id}", "/api/packages/{protocol}/{name}"
        return [
            web.get("/api/version", self._version),
            web.get("/api/gcs_healthz", self._gcs_healthz),
            web.get("/api/v0/cluster_metadata", self._metadata),
            web.get("/api/v0/nodes", self._nodes),
            web.get("/api/v0/actors", self._nothing),
            web.get("/api/v0/tasks", self._nothing),
            web.get("/api/cluster_status", self._status),
            web.post("/api/jobs/", self._submit),
            web.get("/api/jobs/", self._list),
            web.get(job, self._get),
            web.delete(job, self._delete),
            web.post(f"{job}/stop", self._stop),
            web.get(f"{job}/logs", self._logs),
            web.get(f"{job}/logs/tail", self._tail),
            web.get(package, self._has_package),
            web.put(package, self._put_package),
        ]

    async def _version(self, _: web.Request) -> web.Response:
        if self._dashboard.api_version is None:
            raise web.HTTPNotFound
        return web.json_response(
            {
                "version": self._dashboard.api_version,
                "ray_version": self._dashboard.ray_version,
                "ray_commit": "0" * 40,
                "session_name": self._cluster.session_name,
            }
        )

    async def _gcs_healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="success", content_type="application/text")

    async def _metadata(self, _: web.Request) -> web.Response:
        return _data(
            {
                "rayVersion": self._dashboard.ray_version,
                "pythonVersion": self._dashboard.python_version,
                "rayInitCluster": False,
            }
        )

    async def _nodes(self, _: web.Request) -> web.Response:
        return _data(dashboard_responses.nodes(self._cluster))

    async def _nothing(self, _: web.Request) -> web.Response:
        return _data(dashboard_responses.listing([]))

    async def _status(self, request: web.Request) -> web.Response:
        if request.query.get("format") == "1":
            return _data(dashboard_responses.status_text(self._cluster))
        return _data(
            dashboard_responses.status_json(self._cluster, autoscaler_v2=self._dashboard.autoscaler_v2)
        )

    async def _submit(self, request: web.Request) -> web.Response:
        try:
            body = await request.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise Refused(500, "500 Internal Server Error\n\nServer got itself in trouble")
        try:
            submission = parse_submission(body)
        except TypeError as error:
            raise Refused(400, traceback_of(f"TypeError: {error}")) from error
        self._cluster.submit(submission)
        name = submission.submission_id
        return web.json_response({"job_id": name, "submission_id": name})

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response(
            [dashboard_responses.job_details(job) for job in self._cluster.jobs.values()]
        )

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(dashboard_responses.job_details(self._cluster.job(request.match_info["id"])))

    async def _delete(self, request: web.Request) -> web.Response:
        self._cluster.delete(request.match_info["id"])
        return web.json_response({"deleted": True})

    async def _stop(self, request: web.Request) -> web.Response:
        return web.json_response({"stopped": self._cluster.stop(request.match_info["id"])})

    async def _logs(self, request: web.Request) -> web.Response:
        return web.json_response({"logs": self._cluster.logs(request.match_info["id"])})

    async def _tail(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["id"]
        self._cluster.logs(name)  # refuses an unknown job before the handshake
        socket = web.WebSocketResponse()
        if not socket.can_prepare(request).ok:
            raise Refused(500, "500: WebSocket proxy error")
        await socket.prepare(request)
        sent = 0
        while True:
            await self._dashboard.awake()
            if request.transport is None or request.transport.is_closing():
                return socket
            try:
                ended = self._cluster.job(name).status.final
                log = self._cluster.logs(name)
            except Refused:  # deleted, or its node died: the tail ends, whatever the job's status says
                break
            if self._dashboard.tails_are_held():
                await asyncio.sleep(TAIL_POLL_S)
            elif len(log) > sent:
                await socket.send_str(log[sent : sent + 20_000])
                sent = min(sent + 20_000, len(log))
            elif ended:
                break
            else:
                await asyncio.sleep(TAIL_POLL_S)
        await socket.close()
        return socket

    async def _has_package(self, request: web.Request) -> web.Response:
        uri = _package_uri(request)
        if uri not in self._cluster.packages:
            raise Refused(404, f"Package {uri} does not exist")
        return web.Response()

    async def _put_package(self, request: web.Request) -> web.Response:
        self._cluster.packages[_package_uri(request)] = await request.read()
        return web.Response()


def _data(data: object) -> web.Response:
    return web.json_response({"result": True, "msg": "", "data": data})


def _package_uri(request: web.Request) -> str:
    if request.match_info["protocol"] != "gcs":
        last_line = "ValueError: upload_package_to_gcs should not be called with a remote path."
        raise Refused(500, traceback_of(last_line))
    return PACKAGE_SCHEME + request.match_info["name"]
