"""Puts the pages on the server's application.

NiceGUI keeps its state in its modules, so a process has one dashboard.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import cast

from fastapi import FastAPI
from nicegui import app as nicegui_app
from nicegui import ui
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from ray_multicluster_scheduler.config.change import ConfigChange
from ray_multicluster_scheduler.dashboard.frame import frame, show_problem
from ray_multicluster_scheduler.dashboard.live import Live
from ray_multicluster_scheduler.dashboard.page import Page, PageSpec
from ray_multicluster_scheduler.dashboard.page_headers import PageHeaders
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
from ray_multicluster_scheduler.dashboard.preferences import dark_of, language_of
from ray_multicluster_scheduler.dashboard.sockets import bind_sockets
from ray_multicluster_scheduler.dashboard.visitor import Visitor
from ray_multicluster_scheduler.dashboard.words import LANGUAGES, Words
from ray_multicluster_scheduler.errors import Forbidden, InvalidRequest, JobNotFound, SchedulerError
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.service.callers import Callers
from ray_multicluster_scheduler.service.local_service import LocalService

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
