"""What is counted of requests: those that are refused at the door included."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import Scope

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
        now = Gauge(
            "raymc_http_open",
            "What is open now: requests, streams (answers without a known end) and websockets.",
            ["kind"],
            registry=registry,
        )
        self.open = {kind: now.labels(kind) for kind in ("request", "stream", "websocket")}

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request whose answer begins."""
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = getattr(scope.get("route"), "path", NO_ROUTE)
        self.requests.labels(method, route, str(status)).inc()
        self.seconds.labels(method, route).observe(seconds)
