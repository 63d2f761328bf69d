"""One line of JSON for each request: what was asked, by whom, and how it went. Never what was in it."""

from __future__ import annotations

import itertools
import logging
import re
import uuid

from starlette.types import Scope

log = logging.getLogger(__name__)

#: Ids of our own: this process and a number. Random ones would ask the system for each request.
_PROCESS, _NUMBERS = uuid.uuid4().hex[:16], itertools.count(1)
#: A caller's own id for a request is taken over if it is a plain word.
_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.-]{1,64}")
#: What a client that went away before its answer began is logged as.
CLIENT_GONE = 499


def request_id_of(scope: Scope) -> str:
    """Return the name of a request: its caller's, or one of our own."""
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return given.decode() if _REQUEST_ID.fullmatch(given) else f"{_PROCESS}{next(_NUMBERS):016x}"


def log_request(scope: Scope, status: int, took_s: float) -> None:
    """Log what is known of a request that has ended. Its route, not its path: that may hold anything."""
    facts = {
        "method": scope.get("method", "WEBSOCKET"),
        "route": getattr(scope.get("route"), "path", None),
        "status": status,
        "ms": round(1000 * took_s, 1),
        "user": getattr(scope["state"].get("caller"), "user", None),
        "request_id": scope["state"]["request_id"],
    }
    log.info("request", extra=facts)
