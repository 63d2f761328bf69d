"""The door: what every request passes before it reaches a route.

It is counted and named, its host and origin are looked at, its caller is found, and then how often this
caller may ask. Only then may its route read the body, within limits. In the end it is logged.
"""

from __future__ import annotations

import ipaddress
import itertools
import logging
import math
import re
import socket
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ray_multicluster_scheduler.config.find import this_user
from ray_multicluster_scheduler.config.schema import ServerSettings
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.server.authentication import (
    PUBLIC,
    address_of,
    refusal_of,
    refused,
    shown_credential,
)
from ray_multicluster_scheduler.server.metrics import HttpMetrics
from ray_multicluster_scheduler.server.protocol import limited_body
from ray_multicluster_scheduler.server.server_options import ServerOptions
from ray_multicluster_scheduler.service.auth import Callers, RefusedLogins, Unknown
from ray_multicluster_scheduler.service.caller import Caller, Role

# To which names this server answers, and from which pages a browser may call it.
#
# A page of a stranger can let its own name point to this machine (DNS rebinding) and would then pass for
# one of ours: its requests tell by their `Host`. Whatever else a page sends across sites tells by its
# `Origin`.


_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^:/@\s]+)(?::[0-9]{1,5})?")
#: What browsers say of requests by pages that were not served here, whether or not they name the page.
_OTHER_SITES = frozenset({"cross-site", "same-site"})
_ORIGIN = re.compile(r"https?://(?P<host>[^/?#\s]+)")


class AllowList:
    """The names and origins that are taken for ours."""

    def __init__(
        self, *, bind: str, hosts: Collection[str], origins: Collection[str], own_name: str | None = None
    ) -> None:
        own = socket.gethostname() if own_name is None else own_name
        known = {"localhost", bind, own, own.partition(".")[0], *hosts}
        self._names = frozenset(_bare(name) for name in known if name and not name.startswith("*."))
        self._endings = tuple(name[1:].lower() for name in hosts if name.startswith("*."))
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Say with which status and why a request is refused; None: its names are ours."""
        hosts = _values(scope, b"host")
        for host in hosts:
            if not self._is_ours(host):
                return 421, (
                    f"this server does not answer to the name {host[:100]!r}; whoever runs it can allow it: "
                    "raymc serve --allowed-host NAME"
                )
        origins = _values(scope, b"origin")
        if not origins and _crosses_sites(scope):
            return 403, "pages of other sites may not change anything here"
        for origin in origins:
            if origin.lower() not in self._origins and not _same(origin, hosts):
                return 403, (
                    f"pages of {origin[:100]!r} may not call this server; whoever runs it can allow it: "
                    "raymc serve --allowed-origin URL"
                )
        return None

    def _is_ours(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = _bare(found["name"])
        # An address is no name that somebody else could let point to this machine.
        return name in self._names or _is_address(name) or name.endswith((".localhost", *self._endings))


def _crosses_sites(scope: Scope) -> bool:
    """Tell whether a page of another site wants to change something, as its browser says."""
    says = {value.strip().lower() for value in _values(scope, b"sec-fetch-site")}
    return scope.get("method") not in {None, "GET", "HEAD", "OPTIONS"} and bool(says & _OTHER_SITES)


def _same(origin: str, hosts: Sequence[str]) -> bool:
    """Tell whether a page was served under the name that is asked for now, which is one of ours."""
    found = _ORIGIN.fullmatch(origin)
    return found is not None and [found["host"].lower()] == [host.lower() for host in hosts]


def _values(scope: Scope, header: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == header]


def _bare(name: str) -> str:
    return name.lower().rstrip(".").removeprefix("[").removesuffix("]")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


# How often one user may ask, and how much of that at once: nobody can take the server away from others.


CHANGE, LIST, LOG = "changes", "lists", "logs"
#: A bucket holds what fills it in this time: a user may come with a burst.
BURST_S = 10.0
#: Users with a bucket of their own. The least recently seen user is dropped, with a full bucket.
MOST_USERS = 10_000

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
LISTS = frozenset(
    {
        "/api/jobs",
        "/api/jobs/",
        "/api/v1/jobs",
        "/api/v1/jobs/find",
        "/api/v1/jobs/find-each",
        "/api/v1/jobs/get-many",
        "/api/v1/jobs/changes",
        "/api/v1/plan",
        "/api/v1/timeline",
        "/api/v1/counts",
        "/api/v1/queue",
        "/api/v1/events",
        "/api/v1/audit",
        "/api/v1/users",
        "/api/v1/wait-reasons",
        "/api/v1/processes",
    }
)
_LOGS = ("/logs", "/logs/tail")
#: One of our jobs, by its id; and why it is where it is, which reads the whole queue.
_JOB = "/api/v1/jobs/"
_EXPLAIN = "/explain"


class Limits:
    """What each user has asked for lately, and has open now."""

    def __init__(self, settings: ServerSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = {
            CHANGE: settings.changes_per_second,
            LIST: settings.lists_per_second,
            LOG: settings.logs_per_second,
        }
        self._most_open = settings.open_requests_per_user
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()
        self._open: dict[str, int] = {}

    def enter(self, user: str, scope: Scope) -> Response | None:
        """Count a request of a user until `leave`; or return the refusal that says when to try again."""
        wait_s = self._wait_s(user, kind_of(scope))
        if wait_s > 0:
            sentence = f"{user!r} asks more often than this server allows; try again in {wait_s} s"
        elif self._open.get(user, 0) >= self._most_open:
            wait_s = 1
            sentence = f"{user!r} has {self._most_open} requests and streams open, which is the most at once"
        else:
            self._open[user] = self._open.get(user, 0) + 1
            return None
        return refused(scope, 429, "TooManyRequests", sentence, {"Retry-After": str(wait_s)})

    def leave(self, user: str) -> None:
        """Tell that a request of a user has ended."""
        self._open[user] -= 1
        if not self._open[user]:
            del self._open[user]

    def _wait_s(self, user: str, kind: str | None) -> int:
        """Take one from the user's bucket; return 0, or after how many seconds there is one."""
        if kind is None:
            return 0
        rate, now = self._rates[kind], self._clock()
        full = max(1.0, rate * BURST_S)
        left, at = self._buckets.pop((user, kind), (full, now))
        left = min(full, left + (now - at) * rate)
        taken = left >= 1.0
        self._buckets[user, kind] = left - 1.0 if taken else left, now
        if len(self._buckets) > MOST_USERS:
            self._buckets.popitem(last=False)
        return 0 if taken else max(1, math.ceil((1.0 - left) / rate))


def limited_user(scope: Scope) -> str | None:
    """Return the user of a request; None: not limited. Callers that need no token are all one user."""
    caller: Caller | None = scope["state"].get("caller")
    return None if caller is None or caller.token_id is None else caller.user


def kind_of(scope: Scope) -> str | None:
    """Return by which rate a request counts; None: by none."""
    path: str = scope["path"]
    if path in LISTS and (path not in {"/api/jobs", "/api/jobs/", "/api/v1/jobs"} or _reads(scope)):
        return LIST
    if path.endswith(_LOGS):
        return LOG
    if path.startswith(_JOB) and _reads(scope):
        if path.endswith(_EXPLAIN):
            return LIST
        if "/" not in path.removeprefix(_JOB):  # with the log so far, which may come from its cluster
            return LOG
    return None if _reads(scope) else CHANGE


def _reads(scope: Scope) -> bool:
    return scope["type"] == "websocket" or scope["method"] in _READS


# One line of JSON for each request: what was asked, by whom, and how it went. Never what was in it.


log = logging.getLogger(__name__)

#: Ids of our own: this process and a number. Random ones would ask the system for each request.
_PROCESS, _NUMBERS = uuid.uuid4().hex[:16], itertools.count(1)
#: A caller's own id for a request is taken over if it is a plain word.
_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.-]{1,64}")
#: What a client that went away before its answer began is logged as.
CLIENT_GONE = 499


def request_id_of(scope: Scope) -> str:
    """Return the name of a request: its caller's, or one of our own."""
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return given.decode() if _REQUEST_ID.fullmatch(given) else f"{_PROCESS}{next(_NUMBERS):016x}"


def log_request(scope: Scope, status: int, took_s: float) -> None:
    """Log what is known of a request that has ended. Its route, not its path: that may hold anything."""
    facts = {
        "method": scope.get("method", "WEBSOCKET"),
        "route": getattr(scope.get("route"), "path", None),
        "status": status,
        "ms": round(1000 * took_s, 1),
        "user": getattr(scope["state"].get("caller"), "user", None),
        "request_id": scope["state"]["request_id"],
    }
    log.info("request", extra=facts)


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
        caller = await self._callers.identify(shown_credential(Headers(scope=scope)), address_of(scope))
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
