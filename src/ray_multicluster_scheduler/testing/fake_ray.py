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
from ray_multicluster_scheduler.model.resources import GIB, Resources
from ray_multicluster_scheduler.testing.fake_cluster import (
    ASKED_FOR,
    ENVIRONMENT_FAILURE,
    FakeCluster,
    FakeJob,
    Refused,
    RunRecord,
)
from ray_multicluster_scheduler.testing.routes import MAX_BODY_BYTES, Routes
from ray_multicluster_scheduler.testing.runners import Runner, ShellRunner

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
