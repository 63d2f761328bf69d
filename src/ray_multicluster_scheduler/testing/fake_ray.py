"""A Ray cluster for tests: a real HTTP server on loopback that behaves, and fails, like Ray's dashboard."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from aiohttp import web

from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.model.execution import AttemptStatus
from ray_multicluster_scheduler.model.resources import GIB, Resources
from ray_multicluster_scheduler.ray_api.parse import camel_case
from ray_multicluster_scheduler.testing.fake_cluster import (
    ASKED_FOR,
    ENVIRONMENT_FAILURE,
    PACKAGE_SCHEME,
    SUPERVISOR_DIED,
    FakeCluster,
    FakeJob,
    Refused,
    Runner,
    RunRecord,
    ShellRunner,
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


class Routes:
    """The handlers, bound to one fake."""

    def __init__(self, dashboard: FakeRay) -> None:
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


# The ways in which the HTTP of a fake cluster can fail, as measured on real heads.


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Kind = Literal["status", "lose_reply", "html", "cut", "lie"]

HTML_PAGE = "<html><body><h1>Please sign in to continue</h1></body></html>"


@dataclass(slots=True, kw_only=True)
class _Trouble:
    """What happens to the next requests below a path; `times` is None for all of them."""

    kind: Kind
    times: int | None
    only: str
    status: int = 200
    words: str = ""
    lie: Callable[[bytes], bytes] | None = None


class Faults:
    """Faults on demand. Each method says what a caller will see.

    `only` limits a fault to paths with this prefix, or to a method and a path, as in `POST /api/jobs/`.
    """

    def __init__(self) -> None:
        self._delay_s = 0.0
        self._drip_s = 0.0
        self._awake = asyncio.Event()
        self._awake.set()
        self._spared: str | None = None
        self._tails_held = False
        self._troubles: list[_Trouble] = []

    def slow(self, seconds: float) -> None:
        """Let every request wait before it is executed."""
        self._delay_s = seconds

    def drip(self, seconds: float) -> None:
        """Send every answer byte by byte, with a pause after each."""
        self._drip_s = seconds

    def fail(
        self, status: int = 500, *, times: int | None = None, only: str = "", words: str | None = None
    ) -> None:
        """Answer with an error status and these words instead of executing."""
        said = f"{status}: this failure was asked for" if words is None else words
        self._troubles.append(_Trouble(kind="status", times=times, only=only, status=status, words=said))

    def lose_reply(self, times: int = 1, *, only: str = "") -> None:
        """Execute a request, then drop the connection instead of answering."""
        self._troubles.append(_Trouble(kind="lose_reply", times=times, only=only))

    def garbage(self, times: int = 1, *, only: str = "", kind: Literal["html", "cut"] = "html") -> None:
        """Answer 200 with a page of HTML, as a proxy does; or execute, and answer with half of the JSON."""
        self._troubles.append(_Trouble(kind=kind, times=times, only=only))

    def lie(self, change: Callable[[bytes], bytes], *, times: int | None = None, only: str = "") -> None:
        """Execute a request, and answer with the body changed by `change`, unless it is an error."""
        self._troubles.append(_Trouble(kind="lie", times=times, only=only, lie=change))

    def hang(self, *, spare: str | None = None) -> None:
        """Accept connections and answer nothing, like a stopped process; see `resume`.

        Requests for `spare` are still answered: a head without GCS answers `/api/version`.
        """
        self._spared = spare
        self._awake.clear()

    def hold_tails(self) -> None:
        """Leave tailed logs open without sending more, as Ray does for seconds after the end of a job."""
        self._tails_held = True

    def resume(self) -> None:
        """Go on, and execute the requests that arrived in the meantime, even if their callers gave up."""
        self._awake.set()

    def heal(self) -> None:
        """End every fault of this kind."""
        self._delay_s = self._drip_s = 0.0
        self._troubles.clear()
        self._tails_held = False
        self.resume()

    def tails_are_held(self) -> bool:
        """Tell whether tailed logs are silent now."""
        return self._tails_held

    async def awake(self) -> None:
        """Return when the process is not stopped."""
        await self._awake.wait()

    async def apply(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle one request under the faults of this moment."""
        await request.read()  # the kernel has received the whole request, whatever happens to the process
        if request.path != self._spared:
            await self.awake()
        await asyncio.sleep(self._delay_s)
        trouble = self._next_trouble(request)
        if trouble is not None and trouble.kind == "status":
            return web.Response(status=trouble.status, text=trouble.words)
        if trouble is not None and trouble.kind == "html":
            return web.Response(text=HTML_PAGE, content_type="text/html")
        response = await handler(request)
        if trouble is not None and trouble.kind == "lose_reply" and request.transport is not None:
            request.transport.close()
        if not isinstance(response, web.Response) or not isinstance(response.body, bytes):
            return response
        if trouble is not None and trouble.kind == "cut":
            return web.Response(
                body=response.body[: len(response.body) // 2], content_type="application/json"
            )
        if trouble is not None and trouble.lie is not None and response.status == 200:
            return web.Response(body=trouble.lie(response.body), content_type="application/json")
        return await self._drip(request, response, response.body) if self._drip_s else response

    def _next_trouble(self, request: web.Request) -> _Trouble | None:
        for trouble in self._troubles:
            asked = f"{request.method} {request.path}" if " " in trouble.only else request.path
            if asked.startswith(trouble.only):
                if trouble.times is not None:
                    trouble.times -= 1
                    if trouble.times == 0:
                        self._troubles.remove(trouble)
                return trouble
        return None

    async def _drip(self, request: web.Request, response: web.Response, body: bytes) -> web.StreamResponse:
        slow = web.StreamResponse(status=response.status, headers={"Content-Type": response.content_type})
        slow.content_length = len(body)
        await slow.prepare(request)
        for position in range(len(body)):
            await slow.write(body[position : position + 1])
            await asyncio.sleep(self._drip_s)
        return slow


HOST = "127.0.0.1"
#: A process that is killed does not wait for its callers. (Zero would mean "for ever" to aiohttp.)
SHUTDOWN_S = 0.01


class FakeRay(Faults):
    """One fake cluster.

        async with FakeRay(name="a", cpus=4) as fake:
            connection = HttpConnection(fake.spec())

    `fake.runs` has what really ran, whatever the protocol said. The faults of `Faults` are about single
    requests; `kill`, `restart`, `go_dark`, `kill_raylet` and the like are about the cluster and its jobs.
    """

    def __init__(
        self,
        *,
        name: str = "fake",
        cpus: float = 4,
        gpus: float = 0,
        memory: float = 8 * GIB,
        resources: Resources | None = None,
        token: str | None = None,
        ray_version: str = "2.60.0",
        python_version: str = "3.11.7",
        api_version: str | None = "4",
        autoscaler_v2: bool = False,
        runner: Runner | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        amounts = {
            "CPU": cpus,
            "GPU": gpus,
            "memory": memory,
            "object_store_memory": GIB,
            **(resources or {}),
        }
        self.cluster = FakeCluster(
            name=name,
            total={resource: float(amount) for resource, amount in amounts.items() if amount > 0},
            runner=runner or ShellRunner(),
            now=now,
        )
        self.name = name
        self.token = token
        self.ray_version = ray_version
        self.python_version = python_version
        #: None: an old Ray without `/api/version`.
        self.api_version = api_version
        self.autoscaler_v2 = autoscaler_v2
        #: How often each route was called, such as `GET /api/jobs/{id}`.
        self.calls: Counter[str] = Counter()
        #: How many requests of each route are being answered now.
        self.open_calls: Counter[str] = Counter()
        self._port = 0
        self._server: web.AppRunner | None = None

    async def __aenter__(self) -> FakeRay:
        await self.come_back()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.go_dark()
        await self.cluster.close()

    @property
    def url(self) -> str:
        """The address of the dashboard, also while it is dark."""
        return f"http://{HOST}:{self._port}"

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment that holds this cluster's token, under the name that `spec` gives."""
        return {} if self.token is None else {self._token_variable: self.token}

    @property
    def _token_variable(self) -> str:
        return f"FAKE_RAY_{re.sub('[^A-Z0-9]', '_', self.name.upper())}_TOKEN"

    def spec(self, **changes: Any) -> ClusterSpec:
        """Return this cluster's entry of clusters.yaml.

        Its head address is the dashboard's, so that both refuse connections together.
        """
        spec = ClusterSpec(
            name=self.name,
            head_address=f"{HOST}:{self._port}",
            dashboard=self.url,
            auth_token_env=None if self.token is None else self._token_variable,
        )
        return replace(spec, **changes)

    @property
    def runs(self) -> list[RunRecord]:
        """Everything that really ran, in the order of the starts; it survives a restart."""
        return self.cluster.runs

    @property
    def jobs(self) -> Mapping[str, FakeJob]:
        """The jobs that the cluster remembers, by submission id."""
        return self.cluster.jobs

    @property
    def session_name(self) -> str:
        """The name of the current session."""
        return self.cluster.session_name

    def use(self, resources: Resources) -> None:
        """Set the resources that other programs use on this cluster."""
        self.cluster.foreign_use = dict(resources)
        self.cluster.start_what_fits()

    def kill_raylet(self) -> None:
        """Let the node die under the dashboard.

        Jobs are dead, but say RUNNING for ever; the node is DEAD; submit, stop, delete and logs are 500.
        """
        self.cluster.kill_raylet()

    def kill_supervisor(self, submission_id: str) -> None:
        """Let Ray's helper for a running job die, and the job with it: FAILED, but not by its program."""
        self.cluster.kill_supervisor(submission_id)

    def misreport(self, submission_id: str, *, times: int = 1) -> None:
        """Report a job as FAILED in the next `times` answers, although it is not."""
        self.cluster.job(submission_id).misreports = times

    def fail_starts(self, error_type: str | None = ENVIRONMENT_FAILURE, *, words: str = ASKED_FOR) -> None:
        """Let every job that starts from now on fail with Ray's `error_type`; None ends this.

        `{runtime_env}` in `words` becomes the environment that the job was sent with, as Ray quotes it.
        """
        self.cluster.start_failure = error_type
        self.cluster.start_failure_words = words

    async def go_dark(self) -> None:
        """Refuse connections and drop the open ones. Jobs go on."""
        if self._server is None:
            return
        runner, self._server = self._server, None
        # When the server closes, asyncio loses connections that are accepted but not yet handed over. So stop
        # accepting first, then give the accepted ones time to get their transport and handler.
        asyncio.get_running_loop().remove_reader(self._listener)
        for _ in range(3):
            await asyncio.sleep(0)
        await runner.cleanup()

    async def come_back(self) -> None:
        """Listen again, on the same port."""
        if self._server is not None:
            return
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._middleware()])
        app.add_routes(Routes(self).table())
        self._server = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
        await self._server.setup()
        self._listener = socket.create_server((HOST, self._port))
        await web.SockSite(self._server, self._listener).start()
        self._port = self._server.addresses[0][1]

    async def kill(self) -> None:
        """Kill the head: jobs end, connections are refused. After `come_back` it has a new session."""
        await self.go_dark()
        self.cluster.restart()

    async def restart(self) -> None:
        """Kill the head and start it again: jobs end, nothing is remembered, the session is new."""
        await self.kill()
        await self.come_back()

    def _middleware(self) -> Callable[..., Any]:
        @web.middleware
        async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
            route = self._route(request)
            self.calls[route] += 1
            self.open_calls[route] += 1
            try:
                return await self.apply(request, lambda asked: self._answer(asked, handler))
            finally:
                self.open_calls[route] -= 1

        return middleware

    def _route(self, request: web.Request) -> str:
        resource = request.match_info.route.resource
        path = request.path if resource is None else resource.canonical
        return f"{request.method} {path}"

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        authorization = request.headers.get("Authorization")
        if self.token is not None and authorization is None:
            return web.Response(status=401, text="Unauthorized: Missing authentication token")
        if self.token is not None and authorization != f"Bearer {self.token}":
            return web.Response(status=403, text="Forbidden: Invalid authentication token")
        try:
            return await handler(request)
        except Refused as refused:
            return web.Response(status=refused.status, text=refused.text)
