"""How much a request may bring, how deep it may be nested, and how long it may take to arrive."""

from __future__ import annotations

import asyncio
import re

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ray_multicluster_scheduler.asyncio_tools import within
from ray_multicluster_scheduler.server.error_responses import error_body, refusal

#: One job. Ray's own agent takes no larger one.
MOST_BODY_BYTES = 2**20
#: Lists of jobs and of ids.
MOST_LIST_BYTES = 16 * 2**20
LISTS = frozenset(
    f"/api/v1/jobs/{word}"
    for word in ("batch", "find-each", "get-many", "stop", "retry", "delete", "changes")
)
#: Files: their routes read them piece by piece, with limits of their own.
FILES = "/api/packages/"
#: A runtime_env with more levels is nonsense, and what walks through it would not come back.
MOST_DEPTH = 64
#: How long a body may take to arrive.
BODY_TIMEOUT_S = 60.0

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))


class LimitedBody:
    """Reads the body of a request before anything else does, and refuses one that is too much."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its whole body."""
        if scope["type"] != "http" or scope["path"].startswith(FILES):
            await self._app(scope, receive, send)
            return
        refused, body = await _read(scope, receive)
        if refused is not None:
            await refused(scope, receive, send)
            return
        left = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return left.pop() if left else await receive()

        await self._app(scope, again, send)


async def _read(scope: Scope, receive: Receive) -> tuple[Response | None, bytes]:
    most = MOST_LIST_BYTES if scope["path"] in LISTS else MOST_BODY_BYTES
    told = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if told.isdigit() and int(told[:20]) > most:
        return _refuse(scope, 413, f"Maximum request body size {most} exceeded."), b""
    try:
        body = await within(BODY_TIMEOUT_S, _whole(receive, most))
    except asyncio.TimeoutError:
        return _refuse(scope, 408, "The body of this request took too long."), b""
    if body is None:
        return _refuse(scope, 413, f"Maximum request body size {most} exceeded."), b""
    if depth(body) > MOST_DEPTH:
        return _refuse(scope, 422, f"This body is nested more than {MOST_DEPTH} levels deep."), b""
    return None, body


async def _whole(receive: Receive, most: int) -> bytes | None:
    """Return the body, or None when it is too large."""
    parts, size = [], 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if size > most:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


def _refuse(scope: Scope, status: int, sentence: str) -> Response:
    """Refuse in our own shape, or as Ray does where its clients ask."""
    if scope["path"].startswith("/api/v1/"):
        return refusal(status, error_body("InvalidRequest", sentence))
    return PlainTextResponse(sentence, status)


def depth(body: bytes) -> int:
    """Return how deep JSON is nested, without parsing it: a parser may be what breaks."""
    if body.count(b"[") + body.count(b"{") <= MOST_DEPTH:
        return 0
    deepest = now = 0
    for sign in _STRING.sub(b"", body).translate(None, _NO_BRACKET):
        now += 1 if sign in b"[{" else -1
        deepest = max(deepest, now)
    return deepest
