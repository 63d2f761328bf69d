"""Routes for Ray's clients, with answers as they read them: refusals in plain text, JSON as Ray writes it."""

from __future__ import annotations

import ast
import json
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache
from http import HTTPStatus
from importlib.util import find_spec
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, TypeVar, cast

from anyio import to_thread
from fastapi import APIRouter
from packaging.version import Version
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from ray_multicluster_scheduler.errors import (
    Forbidden,
    InvalidRequest,
    JobNotFound,
    NotAuthenticated,
    QuotaExceeded,
    SchedulerError,
)
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.server.authentication import (
    COOKIE,
    INVALID,
    MISSING,
    address_of,
    caller_of,
    scheduler_of,
    service_of,
)
from ray_multicluster_scheduler.server.server_options import ServerOptions
from ray_multicluster_scheduler.service.auth import BEARER, Callers, Unknown
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.query import JobQuery
from ray_multicluster_scheduler.service.service import LocalService

Handler = Callable[[Request], Response | Awaitable[Response]]
H = TypeVar("H", bound=Handler)

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
#: Browsers send at least one of these; Ray's clients send none.
_BROWSER_HEADERS = frozenset(
    b"origin referer sec-fetch-mode sec-fetch-dest sec-fetch-site sec-fetch-user "
    b"access-control-request-method access-control-request-headers".split()
)
#: What each kind of error is to Ray's clients; the first that fits. They take 401 and 403 for credentials.
_STATUS: tuple[tuple[type[SchedulerError], int], ...] = (
    (JobNotFound, 404),
    (NotAuthenticated, 401),
    (Forbidden, 405),  # a role that is too low; Ray has it for browsers, which may only look
    (QuotaExceeded, 429),
    (InvalidRequest, 400),
    (SchedulerError, 503),
)


class RayJSON(Response):
    """JSON as aiohttp writes it, which Ray's dashboard is built on."""

    media_type = "application/json; charset=utf-8"

    def render(self, content: Any) -> bytes:
        """Write the body."""
        return json.dumps(content).encode()


class RayRoute(Route):
    """One path of Ray's, with what answers each method. A path without any is not there.

    Stock clients come here with every submission. FastAPI works out for each request what a handler wants,
    which costs more than most of these answers: here a handler gets the request, and nothing else.
    Refusals are plain text, and no page in a browser can change anything.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, self.handle, include_in_schema=False)
        self.methods = None  # it answers the others too: as Ray does
        #: By method: the role that it needs, and what answers.
        self.handlers: dict[str, tuple[Role | None, Handler]] = {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose path is this one."""
        scope["route"] = self
        try:
            answer = await self._answer(Request(scope, receive))
        except SchedulerError as error:
            answer = refusal_of(error)
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        method = request.method
        if method not in _READS and is_browser(request):
            return refusal(405, f"'{method}' method not allowed for browser traffic.")
        if not self.handlers:
            return refusal(404, "404: Not Found")
        if method not in self.handlers:
            headers = {"Allow": ",".join(sorted(self.handlers))}
            return PlainTextResponse("405: Method Not Allowed", 405, headers=headers)
        role, handler = self.handlers[method]
        if role is not None:
            caller_of(request).check(role)
        if iscoroutinefunction(handler):
            return cast(Response, await handler(request))
        return cast(Response, await run_in_threadpool(handler, request))


class RayRoutes(list[BaseRoute]):
    """Routes of Ray's, in the order in which they are tried."""

    def on(self, method: str, *paths: str, role: Role | None) -> Callable[[H], H]:
        """Return the decorator of a function that answers a method of these paths; GET is HEAD as well.

        One that is no coroutine function does so in a thread.
        """
        methods = ("GET", "HEAD") if method == "GET" else (method,)

        def add(handler: H) -> H:
            for path in paths:
                self._route(path).handlers.update(dict.fromkeys(methods, (role, handler)))
            return handler

        return add

    def _route(self, path: str) -> RayRoute:
        for route in self:
            if isinstance(route, RayRoute) and route.path == path:
                return route
        self.append(route := RayRoute(path))
        return route


#: They come last. An id with a slash leads here too.
UNKNOWN = (RayRoute("/api/jobs/{rest:path}"), RayRoute("/api/packages/{rest:path}"))


def is_browser(request: Request) -> bool:
    """Tell whether a page in a browser asks, by Ray's rule."""
    return any(
        name in _BROWSER_HEADERS or (name == b"user-agent" and value.startswith(b"Mozilla"))
        for name, value in request.scope["headers"]
    )


def refusal(status: int, text: str) -> PlainTextResponse:
    """Refuse in plain text, as Ray does."""
    return PlainTextResponse(text, status_code=status)


def refusal_of(error: SchedulerError) -> PlainTextResponse:
    """Refuse with the words of an error of ours, and Ray's own where its clients look for them."""
    if isinstance(error, JobNotFound):
        return refusal(404, f"Job {error.submission_id} does not exist")
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    return refusal(status, str(error))


# The two paths by which Ray's pages ask whether a token is wanted, and keep one as a cookie.


#: As Ray has it.
COOKIE_S = 30 * 86400
NOT_ENABLED = "Unauthorized: Token authentication is not enabled"

router = APIRouter(include_in_schema=False)


@router.api_route("/api/authentication_mode", methods=["GET", "HEAD"])
def authentication_mode(request: Request) -> Response:
    """Tell whether this server wants a token."""
    wanted = wants_token(request)
    answer = RayJSON({"authentication_mode": "token" if wanted else "disabled"})
    if not wanted:
        answer.delete_cookie(COOKIE, path="/")
    return answer


@router.post("/api/authenticate")
async def authenticate(request: Request) -> Response:
    """Check a token and keep it in a cookie that no script and no other site can use."""
    shown = request.headers.get("authorization", "")
    if not await to_thread.run_sync(wants_token, request):
        return PlainTextResponse(NOT_ENABLED, HTTPStatus.UNAUTHORIZED)
    if not shown:
        return PlainTextResponse(MISSING, HTTPStatus.UNAUTHORIZED)
    credential = shown.removeprefix(BEARER)
    if not shown.startswith(BEARER) or not await is_known_token(request, credential):
        return PlainTextResponse(INVALID, HTTPStatus.FORBIDDEN)
    answer = RayJSON({"status": "authenticated", "message": "Token is valid"})
    keep_token(request, answer, credential)
    return answer


async def is_known_token(request: Request, credential: str) -> bool:
    """Tell whether a token is valid; one that is not is written down as a refused login."""
    callers = cast(Callers, request.app.state.callers)
    return not isinstance(await callers.identify(BEARER + credential, address_of(request.scope)), Unknown)


def keep_token(request: Request, answer: Response, credential: str) -> None:
    """Put a token into a cookie that no script and no other site can use."""
    answer.set_cookie(
        COOKIE,
        credential,
        max_age=COOKIE_S,
        path="/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


def wants_token(request: Request) -> bool:
    """Tell whether callers of this server have to show a token."""
    options = cast(ServerOptions, request.app.state.options)
    return not options.loopback or scheduler_of(request).authenticator.required()


# What Ray's clients ask before all else: which Ray this is, and whether it is well.


#: Version of the Jobs interface; beyond 0, clients follow logs over a websocket.
API_VERSION = "4"
#: What is told where neither this machine nor any cluster has a Ray: the oldest that jobs are sent to.
OLDEST_RAY = "2.9.0"

_OPEN = tuple(state for state in JobState if state not in FINAL)

routes = RayRoutes()


@routes.on("GET", "/api/version", role=Role.READ)
async def version(request: Request) -> Response:
    """Tell the installed Ray's version: clients compare it with what they need, before each submission."""
    installed = installed_ray()
    newest = installed.get("version") or await to_thread.run_sync(_newest_on_clusters, service_of(request))
    return RayJSON(
        {
            "version": API_VERSION,
            "ray_version": newest,
            "ray_commit": installed.get("commit") or "0" * 40,
            "session_name": f"session_{scheduler_of(request).store.store_id}",
        }
    )


@routes.on("GET", "/api/component_activities", role=Role.READ)
def component_activities(request: Request) -> Response:
    """Tell whether there are jobs that have not ended: whoever stops idle clusters asks this."""
    service = service_of(request)
    open_jobs = service.list_jobs(JobQuery(states=_OPEN, limit=1)).jobs
    newest = service.list_jobs(JobQuery(limit=1)).jobs
    driver = {
        "is_active": "ACTIVE" if open_jobs else "INACTIVE",
        "reason": "there are jobs that have not ended" if open_jobs else None,
        "timestamp": time.time(),
        "last_activity_at": max((job.changed_at for job in newest), default=None),
    }
    return RayJSON({"driver": driver})


@routes.on("GET", "/api/gcs_healthz", role=None)
def gcs_healthz(request: Request) -> Response:
    """Say that this server and its store are there; KubeRay waits for it. It needs no token in Ray either."""
    scheduler_of(request).store.history.last_event()
    return Response("success", media_type="application/text; charset=utf-8")


@lru_cache(maxsize=1)
def installed_ray() -> dict[str, Any]:
    """Return `version` and `commit` of the Ray that is installed here, without importing it; or nothing."""
    found = find_spec("ray")
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        path = Path(folder) / "_version.py"
        if path.is_file():
            return _constants(path.read_text())
    return {}


def _constants(text: str) -> dict[str, Any]:
    return {
        target.id: node.value.value
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _newest_on_clusters(service: LocalService) -> str:
    known = [cluster.ray_version for cluster in service.clusters() if cluster.ray_version]
    return max(known, key=_comparable, default=OLDEST_RAY)


def _comparable(version: str) -> Version:
    try:
        return Version(version)
    except ValueError:  # also of a number that is too long for Python
        return Version("0")
