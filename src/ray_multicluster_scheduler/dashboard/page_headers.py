"""What a browser may do with a page: load and run what this server sends, and nothing else.

NiceGUI compiles the templates of its components in the browser, which needs `unsafe-eval`; and Quasar sets
styles of single elements, which needs `unsafe-inline` for styles. Scripts in a page need the nonce of that
page, so text that came to be taken for HTML would still run nothing: neither a script nor an `onerror`.
"""

from __future__ import annotations

import secrets

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_SCRIPT = b"<script"


class PageHeaders:
    """ASGI middleware around the pages: it lets their own scripts run, and no others."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; an answer in HTML gets a nonce and the policy that names it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body: list[bytes] = []

        async def sending(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_page(message):
                start = message
            elif start is None:
                await send(message)
            else:
                body.append(message.get("body", b""))
                if not message.get("more_body", False):
                    for each in _guarded(start, b"".join(body)):
                        await send(each)

        await self._app(scope, receive, sending)


def _is_page(message: Message) -> bool:
    return MutableHeaders(scope=message).get("content-type", "").startswith("text/html")


def _guarded(start: Message, body: bytes) -> tuple[Message, Message]:
    """Return the answer with a nonce in each script. In NiceGUI's pages all other text has no bare `<`."""
    nonce = secrets.token_urlsafe(16)
    body = body.replace(_SCRIPT, _SCRIPT + f' nonce="{nonce}"'.encode())
    headers = MutableHeaders(scope=start)
    headers["content-length"] = str(len(body))
    headers["content-security-policy"] = POLICY.format(nonce=nonce)
    headers["x-content-type-options"] = "nosniff"
    headers["referrer-policy"] = "same-origin"
    return start, {"type": "http.response.body", "body": body, "more_body": False}
