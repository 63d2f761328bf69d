"""Requests, counted around everything else: those that are refused at the door included."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
#: Neither ids nor paths that somebody made up become labels.
NO_ROUTE = "none"


class HttpMetrics:
    """What is counted of requests, streams and websockets."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "raymc_http_requests",
            "Answered requests by the template of their route; none: refused before a route was found.",
            ["method", "route", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "raymc_http_request_seconds",
            "How long requests take until their answer begins.",
            ["method", "route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.open = Gauge(
            "raymc_http_open",
            "What is open now: requests, streams (answers without a known end) and websockets.",
            ["kind"],
            registry=registry,
        )
        for kind in ("request", "stream", "websocket"):
            self.open.labels(kind).set(0)


class CountRequests:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, and count it."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            with self._metrics.open.labels("websocket").track_inprogress():
                await self._app(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun, kind = time.perf_counter(), "request"

        async def watched(message: Message) -> None:
            nonlocal kind
            if message["type"] == "http.response.start":
                self._answered(scope, message["status"], time.perf_counter() - begun)
                if not any(name.lower() == b"content-length" for name, _ in message.get("headers", ())):
                    self._metrics.open.labels("request").dec()
                    kind = "stream"
                    self._metrics.open.labels("stream").inc()
            await send(message)

        self._metrics.open.labels("request").inc()
        try:
            await self._app(scope, receive, watched)
        finally:
            self._metrics.open.labels(kind).dec()

    def _answered(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = getattr(scope.get("route"), "path", NO_ROUTE)
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.seconds.labels(method, route).observe(seconds)
