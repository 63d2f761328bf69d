"""Authentication: every request is identified by its token, or refused, before it reaches a route.

Tokens come in the headers that Ray's own clients send, with Ray's order and Ray's words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ray_multicluster_scheduler.server.allow_list import AllowList
from ray_multicluster_scheduler.server.refusals import answer, is_ours, refused
from ray_multicluster_scheduler.service.callers import BEARER, Callers, Unknown

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
_WORDS = {Unknown.MISSING: MISSING, Unknown.INVALID: INVALID}


class Authentication:
    """ASGI middleware for HTTP and websockets; `scope["state"]["caller"]` is the caller."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        callers: Callers,
        allow_list: AllowList,
        public: Collection[str] = (),
        instead: Callable[[Scope], Response | None] = lambda _: None,
    ) -> None:
        """`public`: further paths that need no token. `instead`: where to send a caller without one."""
        self._app = app
        self._callers = callers
        self._allow_list = allow_list
        self._public = PUBLIC.union(public)
        self._instead = instead

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its caller, or refuse it."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        if (wrong := self._allow_list.refusal(scope)) is not None:
            await answer(refused(scope, wrong[0], "Forbidden", wrong[1]), scope, receive, send)
            return
        if scope["path"] not in self._public:
            caller = await self._callers.of(shown_credential(Headers(scope=scope)), address_of(scope))
            if isinstance(caller, Unknown):
                await self._refuse(_WORDS[caller], scope, receive, send)
                return
            scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, receive, send)

    async def _refuse(self, words: str, scope: Scope, receive: Receive, send: Send) -> None:
        await answer(self._instead(scope) or _refusal(words, scope), scope, receive, send)


def _refusal(words: str, scope: Scope) -> Response:
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
