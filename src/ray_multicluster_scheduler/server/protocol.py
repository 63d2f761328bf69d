"""HTTP with limits that uvicorn does not set: how long and how deep a request may be, and how slow."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

from anyio import move_on_after
from fastapi import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import CloseCode

from ray_multicluster_scheduler.dashboard.addresses import LOGIN
from ray_multicluster_scheduler.server.authentication import refused

log = logging.getLogger(__name__)

#: All of a request before its body: the line and the headers.
MOST_HEAD_BYTES = 64 * 2**10
#: How long a client may take for it, from connecting or from its first byte; and, once it has its answer, for
#: the rest of a body that nobody wanted.
HEAD_TIMEOUT_S = 20.0
#: Of an answer, until the end of a turn.
MOST_HELD_BYTES = 64 * 2**10
TOO_LONG = b"431 Request Header Fields Too Large"


class WrittenTogether:
    """A transport that sends what is written in one turn of the loop as one: an answer's head with its body.

    Uvicorn writes them one after the other, and each call into the system lets other threads run.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send this at the end of the loop's turn, or now if it is much, so that backpressure works."""
        if not self._parts:
            self._loop.call_soon(self._send)
        self._parts.append(data)
        self._size += len(data)
        if self._size > MOST_HELD_BYTES:
            self._send()

    def close(self) -> None:
        """Send what is left, and close."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        parts, self._parts, self._size = self._parts, [], 0
        if parts and not self._transport.is_closing():
            self._transport.write(b"".join(parts))


class CarefulProtocol(HttpToolsProtocol):
    """Closes connections whose request has no end in sight."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_bytes = 0
        self._in_head = True
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a first request."""
        super().connection_made(cast(asyncio.Transport, WrittenTogether(transport, self.loop)))
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._be_patient()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in a part of a request, unless its head is too long."""
        if self._in_head:
            if self._patience is None:
                self._wait_for_head()
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MOST_HEAD_BYTES:
            self._refuse(TOO_LONG)

    def on_message_begin(self) -> None:
        """Begin with the head of a request."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Go on to the body, which the application limits."""
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MOST_HEAD_BYTES:
            self._refuse(TOO_LONG)
            raise ValueError("the head of a request is too long")  # ends the parser
        self._in_head, self._head_bytes = False, 0
        self._be_patient()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Expect another request on the same connection."""
        super().on_message_complete()
        self._in_head, self._head_bytes = True, 0
        self._be_patient()

    def on_response_complete(self) -> None:
        """Wait for the rest of a body that nobody has read, but not for ever."""
        super().on_response_complete()
        if self.cycle.response_complete and not self._in_head and not self.transport.is_closing():
            self._be_patient()
            self._patience = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)

    def _wait_for_head(self) -> None:
        self._patience = self.loop.call_later(HEAD_TIMEOUT_S, self._refuse, b"408 Request Timeout")

    def _be_patient(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _refuse(self, status: bytes) -> None:
        self._be_patient()
        if not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            )
            self.transport.close()


# Websockets that let the server end whatever state they are in, and that send no more than it can read.


#: Frames that one websocket may send at once, and per second in the long run. A page sends some per second.
MOST_FRAMES = 2_000
FRAMES_PER_SECOND = 200.0
#: So much is read before the frames in it are counted.
READ_BYTES = 4 * 2**10


class CarefulWebSocket(WebSocketsSansIOProtocol):
    """Uvicorn says goodbye to each websocket when it ends, and fails if one has begun to close by itself."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._frames, self._counted_at = 0.0, self.loop.time()

    def shutdown(self) -> None:
        """Close the connection."""
        try:
            super().shutdown()
        except InvalidState:  # it is closing; the rest of its goodbye is not waited for
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Take what the peer sends, unless that is more frames than anybody needs."""
        for start in range(0, len(data), READ_BYTES):
            if self.transport.is_closing():
                return
            self.conn.receive_data(data[start : start + READ_BYTES])
            if self.conn.parser_exc is not None:
                self.handle_parser_exception()
                return
            self._count(len(self.conn.events))
            self.handle_events()
            if self._frames > MOST_FRAMES:
                self._fail(CloseCode.POLICY_VIOLATION, "too many frames")

    def handle_parser_exception(self) -> None:
        """End a connection that has sent a wrong frame, also before or after its time."""
        if self.conn.close_sent is None:
            self._fail(CloseCode.PROTOCOL_ERROR, "a wrong frame")
        else:
            super().handle_parser_exception()

    def send_receive_event_to_app(self) -> None:
        """Hand a message on, unless it is a text that is none."""
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self._fail(CloseCode.INVALID_DATA, "a text that is no UTF-8")
                return
        super().send_receive_event_to_app()

    def _count(self, frames: int) -> None:
        now = self.loop.time()
        self._frames = max(0.0, self._frames - (now - self._counted_at) * FRAMES_PER_SECOND) + frames
        self._counted_at = now

    def _fail(self, code: CloseCode, reason: str) -> None:
        if self.handshake_complete and not self.close_sent:
            self.conn.fail(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
        self.queue.put_nowait({"type": "websocket.disconnect", "code": int(code), "reason": reason})
        self.close_sent = True
        self.transport.close()


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
