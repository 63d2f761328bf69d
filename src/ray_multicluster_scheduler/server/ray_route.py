"""Routes for Ray's clients, with answers as they read them: refusals in plain text, JSON as Ray writes it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any, TypeVar, cast

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
from ray_multicluster_scheduler.server.request_caller import caller_of
from ray_multicluster_scheduler.service.caller import Role

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
