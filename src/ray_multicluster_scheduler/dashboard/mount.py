"""Puts the pages on the server's application.

NiceGUI keeps its state in its modules, so a process has one dashboard.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs

from fastapi import FastAPI
from nicegui import Client, core, ui
from nicegui import app as nicegui_app
from socketio.exceptions import ConnectionRefusedError as Refused
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ray_multicluster_scheduler.config.load import ConfigChange
from ray_multicluster_scheduler.dashboard.frame import dark_of, frame, language_of, show_problem
from ray_multicluster_scheduler.dashboard.live import Live
from ray_multicluster_scheduler.dashboard.page import Page, PageSpec, Visitor
from ray_multicluster_scheduler.dashboard.pages import (
    access_page,
    clusters_page,
    job_page,
    jobs_page,
    overview_page,
    processes_page,
    submit_page,
    timeline_page,
)
from ray_multicluster_scheduler.dashboard.words import LANGUAGES, Words
from ray_multicluster_scheduler.errors import Forbidden, InvalidRequest, JobNotFound, SchedulerError
from ray_multicluster_scheduler.service.auth import Callers
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.service.service import LocalService

# Binds each open page to the visitor who opened it.
#
# NiceGUI takes whoever names the id of a page for its visitor. That id is random, but it is no secret that
# is guarded like a token. So a socket must show what the request for its page has shown, and speaks for
# that page only.


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


# What a browser may do with a page: load and run what this server sends, and nothing else.
#
# NiceGUI compiles the templates of its components in the browser, which needs `unsafe-eval`; and Quasar sets
# styles of single elements, which needs `unsafe-inline` for styles. Scripts in a page need the nonce of that
# page, so text that came to be taken for HTML would still run nothing: neither a script nor an `onerror`.


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


STATIC = "/_raymc"
#: How long a page may wait for its first answers, and how long one that lost its connection is kept.
BUILD_S = 30.0
RECONNECT_S = 20.0

Answer = Callable[[Request, Exception], Awaitable[Response]]


PAGES = (
    PageSpec(path="/", title="overview.title", build=overview_page.build, icon="dashboard"),
    PageSpec(path="/jobs", title="jobs.title", build=jobs_page.build, icon="list"),
    PageSpec(path="/jobs/{submission_id}", title="job.title", build=job_page.build),
    PageSpec(path="/timeline", title="timeline.title", build=timeline_page.build, icon="view_timeline"),
    PageSpec(
        path="/submit", title="submit.title", build=submit_page.build, role=Role.SUBMIT, icon="add_circle"
    ),
    PageSpec(path="/clusters", title="clusters.title", build=clusters_page.build, icon="dns"),
    PageSpec(path="/processes", title="processes.title", build=processes_page.build, icon="memory"),
    PageSpec(path="/access", title="access.title", build=access_page.build, role=Role.ADMIN, icon="key"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """The pages of one server."""

    callers: Callers
    #: The service as one caller has it; a new configuration makes a new one.
    service_for: Callable[[Caller], LocalService]
    live: Live
    #: What a request shows to prove its caller, as an `Authorization` header has it.
    shown: Callable[[HTTPConnection], str]
    #: Reads the configuration again in the name of a caller; nothing of the service, but of the whole server.
    reload: Callable[[Caller], ConfigChange]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let the pages follow what happens; enter it on the loop of the server."""
        async with self.live.running():
            yield

    def add(self, spec: PageSpec) -> None:
        """Let NiceGUI serve a page."""

        @ui.page(spec.path, response_timeout=BUILD_S)
        async def show(request: Request) -> None:
            await self._show(spec, request)

    async def _show(self, spec: PageSpec, request: Request) -> None:
        page = self._page(spec, request)
        with frame(page, spec, PAGES):
            try:
                page.visitor.caller.check(spec.role)
                await spec.build(page)
            except SchedulerError as problem:
                page.client.status_code = _status(problem)
                show_problem(page, str(problem))

    def _page(self, spec: PageSpec, request: Request) -> Page:
        words, client = Words(language_of(request)), ui.context.client
        # The page of a route is shared by all of its visitors; each has its own language and theme.
        client.page = copy.copy(client.page)
        client.page.language = LANGUAGES[words.language]
        client.page.dark = dark_of(request)
        client.page.title = f"{words(spec.title)} · raymc"
        return Page(
            visitor=Visitor(
                caller=request.state.caller,
                shown=self.shown(request),
                callers=self.callers,
                service_for=self.service_for,
            ),
            words=words,
            live=self.live,
            client=client,
            path=request.path_params,
            query=request.query_params,
            reload=self.reload,
        )


def add_dashboard(app: FastAPI, dashboard: Dashboard) -> None:
    """Serve the pages from `/` on, behind all other routes."""
    nicegui_app.add_middleware(PageHeaders)  # before `run_with`: what it adds compresses pages
    nicegui_app.add_static_files(STATIC, str(Path(__file__).parent / "static"))
    nicegui_app.config.socket_io_js_transports = ["websocket"]
    bind_sockets(dashboard.shown)
    for spec in PAGES:
        dashboard.add(spec)
    ui.run_with(
        app,
        title="raymc",
        favicon=Path(__file__).parent / "static" / "favicon.svg",
        dark=None,
        binding_refresh_interval=None,
        reconnect_timeout=RECONNECT_S,
        show_welcome_message=False,
        tailwind=False,
    )
    # A path that neither has is no page: the server answers as it does without the dashboard.
    not_found = cast(Answer, app.exception_handlers[HTTPException])

    async def no_such_path(request: Request, problem: Exception) -> Response:
        return await not_found(request, problem)

    nicegui_app.add_exception_handler(404, no_such_path)


def _status(problem: SchedulerError) -> int:
    if isinstance(problem, (JobNotFound, InvalidRequest)):  # the address names what cannot be
        return HTTPStatus.NOT_FOUND
    return HTTPStatus.FORBIDDEN if isinstance(problem, Forbidden) else HTTPStatus.INTERNAL_SERVER_ERROR
