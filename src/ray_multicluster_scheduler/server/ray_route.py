"""Answers in the form that Ray's clients read: plain text for refusals, JSON as Ray writes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ray_multicluster_scheduler.errors import (
    Forbidden,
    InvalidRequest,
    JobNotFound,
    NotAuthenticated,
    QuotaExceeded,
    SchedulerError,
)
from ray_multicluster_scheduler.server.request_caller import allowed
from ray_multicluster_scheduler.service.caller import Role

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
#: Browsers send at least one of these; Ray's clients send none.
_BROWSER_HEADERS = (
    "origin",
    "referer",
    "sec-fetch-mode",
    "sec-fetch-dest",
    "sec-fetch-site",
    "sec-fetch-user",
    "access-control-request-method",
    "access-control-request-headers",
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


class RayRoute(APIRoute):
    """A route whose refusals are plain text, and that no page in a browser can change anything by."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler with Ray's form of answers around it."""
        handle = super().get_route_handler()

        async def answered(request: Request) -> Response:
            if request.method not in _READS and is_browser(request.headers):
                return refusal(405, f"'{request.method}' method not allowed for browser traffic.")
            try:
                return await handle(request)
            except SchedulerError as error:
                return refusal_of(error)

        return answered


def ray_router() -> APIRouter:
    """Return a router for paths of Ray's; they are no part of our own interface's description."""
    return APIRouter(route_class=RayRoute, include_in_schema=False)


def is_browser(headers: Mapping[str, str]) -> bool:
    """Tell whether a page in a browser asks, by Ray's rule."""
    return headers.get("user-agent", "").startswith("Mozilla") or any(
        name in headers for name in _BROWSER_HEADERS
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


def refuse_other_methods(router: APIRouter, *paths: str) -> None:
    """Answer methods that these paths do not have as Ray does; call it when they have all their routes."""
    for path in paths:
        routes = [route for route in router.routes if isinstance(route, APIRoute) and route.path == path]
        known = sorted({method for route in routes for method in route.methods or ()})
        others = [method for method in METHODS if method not in known]
        _refuse(router, path, others, allow=",".join(known))


def _refuse(router: APIRouter, path: str, methods: list[str], *, allow: str) -> None:
    def refuse() -> PlainTextResponse:
        return PlainTextResponse("405: Method Not Allowed", status_code=405, headers={"Allow": allow})

    router.add_api_route(path, refuse, methods=methods, dependencies=[Depends(allowed(Role.READ))])
