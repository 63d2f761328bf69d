"""One line of JSON for each request: what was asked, by whom, and how it went. Never what was in it."""

from __future__ import annotations

import itertools
import logging
import re
import time
import uuid
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

#: Ids of our own: this process and a number. Random ones would ask the system for each request.
_PROCESS, _NUMBERS = uuid.uuid4().hex[:16], itertools.count(1)
#: A caller's own id for a request is taken over if it is a plain word.
_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.-]{1,64}")
#: What a client that went away before its answer began is logged as.
CLIENT_GONE = 499


class RequestLog:
    """Names each request, and logs it when its answer is complete."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        request_id = _id_of(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        began, status, is_gone = time.monotonic(), CLIENT_GONE, False

        async def sending(message: Message) -> None:
            nonlocal status, is_gone
            if message["type"] in {"http.response.start", "websocket.http.response.start"}:
                status = message["status"]
                message = {
                    **message,
                    "headers": [*message["headers"], (b"x-request-id", request_id.encode())],
                }
            elif message["type"] == "websocket.accept":
                status = 101
            try:
                await send(message)
            except OSError:  # the server says so that its client has gone
                status, is_gone = CLIENT_GONE, True
                raise

        try:
            await self._app(scope, receive, sending)
        except Exception:
            if not is_gone:
                log.exception("a request broke", extra={"request_id": request_id})
                status = 500
            raise
        finally:
            log.info("request", extra=_facts(scope, status, time.monotonic() - began))


def _id_of(scope: Scope) -> str:
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return given.decode() if _REQUEST_ID.fullmatch(given) else f"{_PROCESS}{next(_NUMBERS):016x}"


def _facts(scope: Scope, status: int, took_s: float) -> dict[str, Any]:
    """Return what is known of a request. Its route, not its path: that may hold anything."""
    caller = scope["state"].get("caller")
    return {
        "method": scope.get("method", "WEBSOCKET"),
        "route": getattr(scope.get("route"), "path", None),
        "status": status,
        "ms": round(1000 * took_s, 1),
        "user": getattr(caller, "user", None),
        "request_id": scope["state"]["request_id"],
    }
