"""The door: what every request passes before it reaches a route.

It is counted and named, its host and origin are looked at, its caller is found, and then how often this
caller may ask. Only then may its route read the body, within limits. In the end it is logged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ray_multicluster_scheduler.config.user import this_user
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.server.allow_list import AllowList
from ray_multicluster_scheduler.server.authentication import PUBLIC, address_of, refusal_of, shown_credential
from ray_multicluster_scheduler.server.body_limit import limited_body
from ray_multicluster_scheduler.server.http_metrics import HttpMetrics
from ray_multicluster_scheduler.server.limits import Limits, limited_user
from ray_multicluster_scheduler.server.refusals import refused
from ray_multicluster_scheduler.server.request_log import CLIENT_GONE, log_request, request_id_of
from ray_multicluster_scheduler.server.server_options import ServerOptions
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.service.callers import Callers, Unknown
from ray_multicluster_scheduler.service.refused_logins import RefusedLogins

log = logging.getLogger(__name__)


def add_door(
    app: FastAPI, scheduler: Scheduler, options: ServerOptions, metrics: HttpMetrics, **login: Any
) -> None:
    """Put the door before all routes. `login`: how it treats browsers, where there are pages for them."""
    settings = scheduler.config.server
    logins = app.state.refused_logins = RefusedLogins(scheduler.access, scheduler.clock)
    callers = app.state.callers = Callers(
        scheduler.authenticator,
        logins,
        always=not options.loopback,
        local=Caller(user=this_user(), role=Role.ADMIN),
    )
    origins = (*settings.allowed_origins, *options.allowed_origins)
    app.add_middleware(
        Door,
        callers=callers,
        allow_list=AllowList(
            bind=options.host, hosts=(*settings.allowed_hosts, *options.names), origins=origins
        ),
        limits=Limits(settings),
        metrics=metrics,
        origins=origins,
        **login,
    )


class Door:
    """ASGI middleware for HTTP and websockets; `scope["state"]` has the `caller` and the `request_id`."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        callers: Callers,
        allow_list: AllowList,
        limits: Limits,
        metrics: HttpMetrics,
        origins: Collection[str] = (),
        public: Collection[str] = (),
        instead: Callable[[Scope], Response | None] = lambda _: None,
    ) -> None:
        """`public`: further paths that need no token. `instead`: where to send a caller without one."""
        self._app = app
        self._callers = callers
        self._allow_list = allow_list
        self._limits = limits
        self._metrics = metrics
        self._public = PUBLIC.union(public)
        self._instead = instead
        self._checked: ASGIApp = self._check
        if origins:  # before the caller is looked for: a browser asks beforehand, without credentials
            self._checked = CORSMiddleware(
                self._check,
                allow_origins=origins,
                allow_methods=["GET", "POST", "PUT", "DELETE"],
                allow_headers=["Authorization", "Content-Type", "Last-Event-ID"],
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or refuse it; either way it is counted and logged."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        visit = _Visit(scope, send, self._metrics)
        try:
            await self._checked(scope, receive, visit.send)
        except Exception:
            if not visit.is_gone:
                log.exception("a request broke", extra={"request_id": visit.request_id})
                visit.status = 500
            raise
        finally:
            visit.end()

    async def _check(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal, user = await self._refusal(scope), limited_user(scope)
        if refusal is None and user is not None:
            refusal = self._limits.enter(user, scope)
        if refusal is not None:
            if scope["type"] == "websocket":
                await receive()  # the handshake, which the refusal answers
            await refusal(scope, receive, send)
            return
        try:
            await self._app(scope, limited_body(scope, receive), send)
        finally:
            if user is not None:
                self._limits.leave(user)

    async def _refusal(self, scope: Scope) -> Response | None:
        """Find the caller of a request; return the answer to one that is refused."""
        if (wrong := self._allow_list.refusal(scope)) is not None:
            return refused(scope, wrong[0], "Forbidden", wrong[1])
        if scope["path"] in self._public:
            return None
        caller = await self._callers.of(shown_credential(Headers(scope=scope)), address_of(scope))
        if isinstance(caller, Unknown):
            return self._instead(scope) or refusal_of(caller, scope)
        scope["state"]["caller"] = caller
        return None


class _Visit:
    """One request on its way through the door, and how it goes."""

    __slots__ = ("begun", "is_gone", "kind", "metrics", "request_id", "scope", "status", "to_client")

    def __init__(self, scope: Scope, send: Send, metrics: HttpMetrics) -> None:
        self.scope = scope
        self.to_client = send
        self.metrics = metrics
        self.request_id = scope.setdefault("state", {})["request_id"] = request_id_of(scope)
        self.status, self.is_gone = CLIENT_GONE, False
        self.begun = time.perf_counter()
        self.kind = "request" if scope["type"] == "http" else "websocket"
        metrics.open[self.kind].inc()

    async def send(self, message: Message) -> None:
        """Pass on what the answer consists of, with the request's name in its head."""
        what = message["type"]
        if what == "websocket.accept":
            self.status = 101
        elif what in {"http.response.start", "websocket.http.response.start"}:
            self.status = message["status"]
            if self.kind == "request":
                self._answered(message)
            name = b"x-request-id", self.request_id.encode()
            message = {**message, "headers": [*message["headers"], name]}
        try:
            await self.to_client(message)
        except OSError:  # the server says so that its client has gone
            self.status, self.is_gone = CLIENT_GONE, True
            raise

    def _answered(self, start: Message) -> None:
        self.metrics.answered(self.scope, self.status, time.perf_counter() - self.begun)
        if not any(name.lower() == b"content-length" for name, _ in start["headers"]):
            self.metrics.open[self.kind].dec()
            self.kind = "stream"
            self.metrics.open[self.kind].inc()

    def end(self) -> None:
        """Count and log that it is over."""
        self.metrics.open[self.kind].dec()
        log_request(self.scope, self.status, time.perf_counter() - self.begun)
