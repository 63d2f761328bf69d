"""The two paths by which Ray's pages ask whether a token is wanted, and keep one as a cookie."""

from __future__ import annotations

from http import HTTPStatus
from typing import cast

from anyio import to_thread
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ray_multicluster_scheduler.server.authentication import COOKIE, INVALID, MISSING, address_of
from ray_multicluster_scheduler.server.ray_route import RayJSON
from ray_multicluster_scheduler.server.request_caller import scheduler_of
from ray_multicluster_scheduler.server.server_options import ServerOptions
from ray_multicluster_scheduler.service.callers import BEARER, Callers, Unknown

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
    return not isinstance(await callers.of(BEARER + credential, address_of(request.scope)), Unknown)


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
