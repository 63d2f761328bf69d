"""Binds each open page to the visitor who opened it.

NiceGUI takes whoever names the id of a page for its visitor. That id is random, but it is no secret that is
guarded like a token. So a socket must show what the request for its page has shown, and speaks for that page
only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qs

from nicegui import Client, core
from socketio.exceptions import ConnectionRefusedError as Refused
from starlette.requests import HTTPConnection

#: What an open page sends. Each message names the page.
MESSAGES = ("event", "javascript_response", "ack", "log")
#: What NiceGUI raises where a part of a message is missing, or of another kind. No page of ours sends such.
NONSENSE = (AttributeError, IndexError, KeyError, TypeError, ValueError)
#: NiceGUI's words: a browser that gets them loads its page anew.
RELOAD = "Implicit handshake failed"

Shown = Callable[[HTTPConnection], str]
Environ = Mapping[str, Any]


def bind_sockets(shown: Shown) -> None:
    """Let sockets speak only for pages that were opened with what they show themselves."""
    sio = core.sio
    sio.eio.transports = ["websocket"]  # as the pages do; others would only be further ways in
    handlers = sio.handlers["/"]
    connect, handshake = handlers["connect"], handlers["handshake"]

    async def connecting(sid: str, environ: Environ, auth: object = None) -> None:
        page = parse_qs(environ.get("QUERY_STRING", "")).get("client_id", [""])[0]
        if not _opened(page, environ, shown):
            raise Refused(RELOAD)
        with _refusing_nonsense():
            await connect(sid, environ, auth)

    async def shaking_hands(sid: str, message: Mapping[str, Any]) -> bool:
        if not _opened(_page_of(message), sio.get_environ(sid), shown):
            return False
        with suppress(*NONSENSE):
            return bool(await handshake(sid, message))
        return False

    sio.on("connect", connecting)
    sio.on("handshake", shaking_hands)
    for name in MESSAGES:
        sio.on(name, _own(handlers[name]))


def _opened(page: str, environ: Environ, shown: Shown) -> bool:
    """Tell whether the request for a page has shown the same as a socket."""
    client = Client.instances.get(page)
    return client is not None and shown(client.request) == shown(HTTPConnection(environ["asgi.scope"]))


def _own(handler: Callable[[str, Any], Awaitable[None] | None]) -> Callable[[str, Any], None]:
    """Return the handler of a message that drops messages for pages of other sockets."""

    def own(sid: str, message: Any) -> None:
        if _page_of(message) in core.sio.rooms(sid):  # each page has a room, which its handshake enters
            with suppress(*NONSENSE):
                handler(sid, message)

    return own


@contextmanager
def _refusing_nonsense() -> Iterator[None]:
    try:
        yield
    except NONSENSE:
        raise Refused(RELOAD) from None


def _page_of(message: Any) -> str:
    page = message.get("client_id") if isinstance(message, dict) else None
    return page if isinstance(page, str) else ""
