"""Who asks, and what a route gets of that: which paths need no token, what the others say without one.

Tokens come in the headers that Ray's own clients send, with Ray's order and Ray's words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar, cast

from anyio import to_thread
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response
from starlette.types import Scope

from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.server.error_responses import error_body, refusal
from ray_multicluster_scheduler.service.auth import BEARER, Unknown
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.service.service import LocalService

# Refusing a request before it reaches a route: in our own shape, or as Ray does where its clients ask.


#: Paths that are ours; all others are Ray's, also those that neither has.
_OURS = ("/api/v1/", "/docs", "/openapi.json", "/metrics", "/healthz", "/readyz")


def is_ours(path: str) -> bool:
    """Tell whether a path belongs to our own interface."""
    return path.startswith(_OURS)


def refused(
    scope: Scope, status: int, kind: str, sentence: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the refusal in the form that this path's clients read; `kind` is the name of our error."""
    if is_ours(scope["path"]):
        return refusal(status, error_body(kind, sentence), headers)
    return PlainTextResponse(sentence, status, headers=dict(headers or {}))


#: What needs no token. A test holds every other route to refusing callers without one.
PUBLIC = frozenset(
    {
        "/healthz",
        "/readyz",
        "/docs",  # the same for every server; it tells nothing of this one
        "/openapi.json",
        "/api/gcs_healthz",  # Ray's, like the next two
        "/api/authentication_mode",
        "/api/authenticate",
    }
)

#: Ray's names and words: its SDK and its pages know them.
COOKIE = "ray-authentication-token"
MISSING = "Unauthorized: Missing authentication token"
INVALID = "Forbidden: Invalid authentication token"


def refusal_of(why: Unknown, scope: Scope) -> Response:
    """Return the refusal of a caller who is not known."""
    words = MISSING if why is Unknown.MISSING else INVALID
    if is_ours(scope["path"]):
        return refused(scope, 401, "NotAuthenticated", _advice(words), {"WWW-Authenticate": "Bearer"})
    return refused(scope, 401 if words == MISSING else 403, "NotAuthenticated", words)


def shown_credential(headers: Mapping[str, str]) -> str:
    """Return what a request shows, as an `Authorization` header has it: the first that is there counts."""
    given = headers.get("authorization") or headers.get("x-ray-authorization")
    if given:
        return given
    for cookie in headers.get("cookie", "").split(";"):  # Python's own parser takes quadratic time
        name, _, value = cookie.strip().partition("=")
        if name == COOKIE and value:
            return BEARER + value.strip('"')
    return ""


def address_of(scope: Scope) -> str | None:
    """Return where a request comes from: a machine, or the proxy in front of this server."""
    client = scope.get("client")
    return str(client[0]) if client else None


def _advice(words: str) -> str:
    return (
        "this server wants a token: send the header `Authorization: Bearer TOKEN`; whoever runs it makes one "
        "with `raymc token create`"
        if words == MISSING
        else "this token is not valid, or not any more; ask whoever runs this server for another one"
    )


# The caller of a request, and the service for this caller.


def scheduler_of(connection: HTTPConnection) -> Scheduler:
    """Return the scheduler behind this server."""
    return cast(Scheduler, connection.app.state.scheduler)


def caller_of(connection: HTTPConnection) -> Caller:
    """Return the caller that the authentication has found."""
    return cast(Caller, connection.state.caller)


def service_of(connection: HTTPConnection) -> LocalService:
    """Return the service as the caller sees it."""
    return scheduler_of(connection).service.as_caller(caller_of(connection))


def allowed(role: Role) -> Callable[[HTTPConnection], Awaitable[LocalService]]:
    """Return the dependency of a route that needs this role: the service as the caller sees it."""

    async def service(connection: HTTPConnection) -> LocalService:
        caller_of(connection).check(role)
        return service_of(connection)

    service.role = role  # type: ignore[attr-defined]  # the test of all routes reads it
    return service


T = TypeVar("T")


async def in_cluster_thread(connection: HTTPConnection, call: Callable[[], T]) -> T:
    """Make a blocking call that talks to clusters: a slow one must not take the threads of the others."""
    return await to_thread.run_sync(call, limiter=connection.app.state.cluster_threads)
