"""The two paths by which Ray's pages ask whether a token is wanted, and keep one as a cookie."""

from __future__ import annotations

from http import HTTPStatus
from typing import cast

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ray_multicluster_scheduler.server.authentication import COOKIE, INVALID, MISSING, address_of
from ray_multicluster_scheduler.server.ray_route import RayJSON
from ray_multicluster_scheduler.server.request_caller import scheduler_of
from ray_multicluster_scheduler.server.server_options import ServerOptions
from ray_multicluster_scheduler.service.callers import BEARER
from ray_multicluster_scheduler.service.refused_logins import RefusedLogins

#: As Ray has it.
COOKIE_S = 30 * 86400
NOT_ENABLED = "Unauthorized: Token authentication is not enabled"

router = APIRouter(include_in_schema=False)


@router.api_route("/api/authentication_mode", methods=["GET", "HEAD"])
def authentication_mode(request: Request) -> Response:
    """Tell whether this server wants a token."""
    wanted = _wanted(request)
    answer = RayJSON({"authentication_mode": "token" if wanted else "disabled"})
    if not wanted:
        answer.delete_cookie(COOKIE, path="/")
    return answer


@router.post("/api/authenticate")
def authenticate(request: Request) -> Response:
    """Check a token and keep it in a cookie that no script and no other site can use."""
    shown = request.headers.get("authorization", "")
    if not _wanted(request):
        return PlainTextResponse(NOT_ENABLED, HTTPStatus.UNAUTHORIZED)
    if not shown:
        return PlainTextResponse(MISSING, HTTPStatus.UNAUTHORIZED)
    credential = shown.removeprefix(BEARER)
    known = shown.startswith(BEARER) and scheduler_of(request).authenticator.authenticate(credential)
    if not known:
        logins, address = cast(RefusedLogins, request.app.state.refused_logins), address_of(request.scope)
        if logins.count(address):
            logins.record(address)
        return PlainTextResponse(INVALID, HTTPStatus.FORBIDDEN)
    answer = RayJSON({"status": "authenticated", "message": "Token is valid"})
    answer.set_cookie(
        COOKIE,
        credential,
        max_age=COOKIE_S,
        path="/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


def _wanted(request: Request) -> bool:
    options = cast(ServerOptions, request.app.state.options)
    return not options.loopback or scheduler_of(request).authenticator.required()
