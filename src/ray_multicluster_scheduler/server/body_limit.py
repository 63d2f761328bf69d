"""How much a request may bring, how deep it may be nested, and how long it may take to arrive."""

from __future__ import annotations

import asyncio

from fastapi import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ray_multicluster_scheduler.asyncio_tools import within
from ray_multicluster_scheduler.dashboard.addresses import LOGIN
from ray_multicluster_scheduler.server.refusals import refused

#: One job. Ray's own agent takes no larger one.
MOST_BODY_BYTES = 2**20
#: Lists of jobs and of ids.
MOST_LIST_BYTES = 16 * 2**20
LISTS = frozenset(
    f"/api/v1/jobs/{word}"
    for word in ("batch", "find-each", "get-many", "stop", "retry", "delete", "changes")
)
#: The only body that is read of a caller who is not known yet: a form with a token.
MOST_LOGIN_BYTES = 4 * 2**10
#: Files: their routes read them piece by piece, with limits of their own.
FILES = "/api/packages/"
#: A runtime_env with more levels is nonsense, and what walks through it would not come back.
MOST_DEPTH = 64
#: How long a body may take to arrive.
BODY_TIMEOUT_S = 60.0
#: What takes longer to look through than other requests should wait.
LARGE_BYTES = 2**18

_QUOTE = ord('"')
_NO_SIGN = bytes(set(range(256)) - set(b'[]{}"'))


class BodyRefused(HTTPException):
    """A body is too large, too deep, or too slow."""


class LimitedBody:
    """Reads the body of a request as soon as its route asks for it, and refuses one that is too much.

    Nothing is read for a route that takes no body, nor before a caller is known: this comes behind that.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with a body that is whole, and within the limits."""
        if scope["type"] != "http" or scope["path"].startswith(FILES):
            await self._app(scope, receive, send)
            return
        is_read = False

        async def whole() -> Message:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            body = await _read(scope, receive)
            if body is None:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, whole, send)


async def refuse_body(request: Request, problem: Exception) -> Response:
    """Answer `BodyRefused` in the form that this path's clients read."""
    assert isinstance(problem, BodyRefused)
    return refused(request.scope, problem.status_code, "InvalidRequest", problem.detail)


async def _read(scope: Scope, receive: Receive) -> bytes | None:
    """Return the whole body; None: the client has gone."""
    most = _most_bytes(scope["path"])
    told = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if told.isdigit() and int(told[:20]) > most:
        raise _too_large(most)
    try:
        body = await within(BODY_TIMEOUT_S, _whole(receive, most))
    except asyncio.TimeoutError:
        raise BodyRefused(408, "The body of this request took too long.") from None
    if body is None:
        return None
    if b"\0" in body[:4]:  # a parser would take it for UTF-16 or UTF-32, where brackets look otherwise
        raise BodyRefused(415, "This body is not in UTF-8.")
    deepest = depth(body) if len(body) < LARGE_BYTES else await asyncio.to_thread(depth, body)
    if deepest > MOST_DEPTH:
        raise BodyRefused(422, f"This body is nested more than {MOST_DEPTH} levels deep.")
    return body


def _most_bytes(path: str) -> int:
    if path == LOGIN:
        return MOST_LOGIN_BYTES
    return MOST_LIST_BYTES if path in LISTS else MOST_BODY_BYTES


async def _whole(receive: Receive, most: int) -> bytes | None:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if size > most:
            raise _too_large(most)
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(most: int) -> BodyRefused:
    return BodyRefused(413, f"Maximum request body size {most} exceeded.")


def depth(body: bytes) -> int:
    """Return how deep JSON is nested, without parsing it: a parser may be what breaks.

    More levels than are allowed are not counted to their end.
    """
    if body.count(b"[") + body.count(b"{") <= MOST_DEPTH:
        return 0
    # A backslash takes the meaning from what follows it, from left to right.
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotes in a row change nothing about which brackets are inside a string.
    signs = unescaped.translate(None, _NO_SIGN).replace(b'""', b"")
    deepest = now = 0
    in_string = False
    for sign in signs:
        if sign == _QUOTE:
            in_string = not in_string
        elif not in_string:
            now += 1 if sign in b"[{" else -1
            if now > deepest:
                deepest = now
                if deepest > MOST_DEPTH:
                    break
    return deepest
