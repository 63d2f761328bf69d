"""How much a request may bring, how deep it may be nested, and how long it may take to arrive."""

from __future__ import annotations

import asyncio

from anyio import move_on_after
from fastapi import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope

from ray_multicluster_scheduler.dashboard.addresses import LOGIN
from ray_multicluster_scheduler.server.authentication import refused

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


def limited_body(scope: Scope, receive: Receive) -> Receive:
    """Return what reads the whole body when its route asks for it, and refuses one that is too much.

    Nothing is read for a route that takes no body.
    """
    if scope["type"] != "http" or scope["path"].startswith(FILES):
        return receive
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

    return whole


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
    body = None
    with move_on_after(BODY_TIMEOUT_S) as waiting:
        body = await _whole(receive, most)
    if waiting.cancelled_caught:
        raise BodyRefused(408, "The body of this request took too long.")
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
