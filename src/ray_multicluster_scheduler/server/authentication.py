"""What callers show to be known, which paths need no token, and what the others say without one.

Tokens come in the headers that Ray's own clients send, with Ray's order and Ray's words.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Scope

from ray_multicluster_scheduler.server.refusals import is_ours, refused
from ray_multicluster_scheduler.service.callers import BEARER, Unknown

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
