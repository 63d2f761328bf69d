"""The HTTP interface of a fake cluster: paths, statuses and messages of Ray's dashboard."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from aiohttp import web

from ray_multicluster_scheduler.model.execution import AttemptStatus
from ray_multicluster_scheduler.model.resources import GIB, Resources
from ray_multicluster_scheduler.ray_api.parse import camel_case
from ray_multicluster_scheduler.testing.fake_cluster import (
    PACKAGE_SCHEME,
    SUPERVISOR_DIED,
    FakeCluster,
    FakeJob,
    Refused,
    parse_submission,
    traceback_of,
)

# The JSON and the text that Ray's dashboard would send about a fake cluster.


def job_details(job: FakeJob) -> dict[str, Any]:
    """Return one job with all the keys that Ray sends, in its order."""
    submission, lie = job.submission, {}
    if job.misreports:
        job.misreports -= 1
        lie = {"status": AttemptStatus.FAILED.value, "message": "asked for", "error_type": SUPERVISOR_DIED}
    return {
        "type": "SUBMISSION",
        "job_id": None,
        "submission_id": submission.submission_id,
        "driver_info": None,
        "status": job.status.value,
        "entrypoint": submission.entrypoint,
        "message": _message(job),
        "error_type": job.error_type,
        "start_time": int(job.submitted_at * 1000),
        "end_time": None if job.ended_at is None else int(job.ended_at * 1000),
        "metadata": submission.metadata,
        "runtime_env": submission.runtime_env,
        "driver_agent_http_address": None if job.node_id is None else "http://127.0.0.1:52365",
        "driver_node_id": job.node_id,
        "driver_exit_code": job.exit_code,
        **lie,
    }


def _message(job: FakeJob) -> str:
    if job.status is AttemptStatus.RUNNING:
        return "Job is currently running."
    if job.status is not AttemptStatus.PENDING:
        return job.message
    message = "Job has not started yet."
    if job.submission.demand:
        message += (
            " It may be waiting for resources (CPUs, GPUs, memory, custom resources) to become available."
        )
    if job.submission.runtime_env:
        message += " It may be waiting for the runtime environment to be set up."
    return message


def nodes(cluster: FakeCluster) -> dict[str, Any]:
    """Return the one node, which is the head."""
    node = {
        "node_id": cluster.node_id,
        "node_ip": "127.0.0.1",
        "is_head_node": True,
        "state": "ALIVE" if cluster.raylet_alive else "DEAD",
        "state_message": None if cluster.raylet_alive else "Unexpected termination: health check failed",
        "node_name": "127.0.0.1",
        "resources_total": _with_markers(cluster.total) if cluster.raylet_alive else {},
        "labels": {"ray.io/node-id": cluster.node_id},
    }
    return listing([node])


def listing(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the data of a list of Ray's state API."""
    counts = dict.fromkeys(("total", "num_after_truncation", "num_filtered"), len(rows))
    return {"result": {**counts, "result": rows, "partial_failure_warning": "", "warnings": None}}


def _with_markers(total: Resources) -> dict[str, float]:
    """Add the resources that Ray itself puts on every head."""
    return {**total, "node:__internal_head__": 1.0, "node:127.0.0.1": 1.0}


def status_json(cluster: FakeCluster, *, autoscaler_v2: bool) -> dict[str, Any]:
    """Return the data of `/api/cluster_status`, with keys rewritten as the dashboard does."""
    if autoscaler_v2:
        return {"autoscalingStatus": None, "autoscalingError": None, "clusterStatus": None}
    total = _with_markers(cluster.total) if cluster.raylet_alive else {}
    used = cluster.used()
    report = {
        "usage": {camel_case(name): [used.get(name, 0.0), amount] for name, amount in total.items()},
        "resourceDemand": [[dict(job.submission.demand), 1] for job in cluster.waiting()],
        "pgDemand": [],
        "requestDemand": [],
        "nodeTypes": [[total, 1]] if total else [],
    }
    return {
        "autoscalingStatus": None,
        "autoscalingError": None,
        "clusterStatus": {"loadMetricsReport": report},
    }


def status_text(cluster: FakeCluster) -> dict[str, str]:
    """Return the data of `/api/cluster_status?format=1`."""
    total = cluster.total if cluster.raylet_alive else {}
    used = cluster.used()
    usage = [f" {_amount(n, used[n])}/{_amount(n, amount)} {n}" for n, amount in sorted(total.items())]
    demand = [f" {dict(job.submission.demand)}: 1+ pending tasks/actors" for job in cluster.waiting()]
    line = "-" * 63
    lines = [
        "======== Autoscaler status: 2026-01-01 00:00:00.000000 ========",
        *["Node status", line, "Active:", f" 1 node_{cluster.node_id}", "Pending:", " (no pending nodes)"],
        *["Recent failures:", " (no failures)", "", "Resources", line, "Total Usage:", *usage, ""],
        *["From request_resources:", " (none)", "Pending Demands:", *(demand or [" (no resource demands)"])],
    ]
    return {"clusterStatus": "\n".join(lines)}


def _amount(name: str, amount: float) -> str:
    if name not in {"memory", "object_store_memory"}:
        return str(float(amount))
    for unit, size in (("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10)):
        if amount >= size:
            return f"{amount / size:.2f}{unit}"
    return f"{int(amount)}B"


#: Ray looks for new log lines once a second; tests have less time.
TAIL_POLL_S = 0.02
#: Ray 2.9 puts a 1 before each block of a log file that it sends, or a 0 before an error.
LOG_BLOCK_BYTES = 2**16
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
            web.get("/api/v0/logs", self._list_logs),
            web.get("/api/v0/logs/file", self._log_file),
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
        return _data(nodes(self._cluster))

    async def _nothing(self, _: web.Request) -> web.Response:
        return _data(listing([]))

    async def _list_logs(self, request: web.Request) -> web.Response:
        path = self._cluster.log_file(request.query["node_id"], request.query["glob"])
        return _data({"result": {"internal": [path.name]} if path.is_file() else {}})

    async def _log_file(self, request: web.Request) -> web.Response:
        path = self._cluster.log_file(request.query["node_id"], request.query["filename"])
        is_there, words = path.is_file(), f"A file is not found at: {path}"
        if not self._dashboard.ray_version.startswith("2.9."):
            if not is_there:
                raise Refused(500, words)
            return web.Response(body=path.read_bytes())
        if not is_there:
            return web.Response(text=f"0Closing HTTP stream due to internal server error.\n{words}")
        content = path.read_bytes()
        starts = range(0, len(content), LOG_BLOCK_BYTES)
        return web.Response(body=b"".join(b"1" + content[at : at + LOG_BLOCK_BYTES] for at in starts))

    async def _status(self, request: web.Request) -> web.Response:
        if request.query.get("format") == "1":
            return _data(status_text(self._cluster))
        return _data(status_json(self._cluster, autoscaler_v2=self._dashboard.autoscaler_v2))

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
        return web.json_response([job_details(job) for job in self._cluster.jobs.values()])

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(job_details(self._cluster.job(request.match_info["id"])))

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
