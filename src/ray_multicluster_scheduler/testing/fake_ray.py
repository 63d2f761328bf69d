"""A Ray cluster for tests: a real HTTP server on loopback that behaves, and fails, like Ray's dashboard."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

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
from ray_multicluster_scheduler.testing.faults import Faults, Handler
from ray_multicluster_scheduler.testing.routes import MAX_BODY_BYTES, Routes
from ray_multicluster_scheduler.testing.runners import Runner, ShellRunner

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
