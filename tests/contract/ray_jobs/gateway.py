"""The server on a real port in front of fake clusters."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter
from fastapi import FastAPI
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.support.serving import serving
from tests.support.system import System

from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.server.app import RAY_ROUTES, create_app
from ray_multicluster_scheduler.server.server_options import ServerOptions
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.testing import FakeRay

#: Says who asks; the real server knows it by a token.
USER_HEADER = "x-test-user"


class Recognise:
    """Takes everybody at their word."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in {"http", "websocket"}:
            connection = HTTPConnection(scope)
            user = connection.headers.get(USER_HEADER, "ann")
            role = Role.OPERATE if user == "operator" else Role.SUBMIT
            connection.state.caller = Caller(user=user, role=role)
        await self._app(scope, receive, send)


def several_users(scheduler: EmbeddedScheduler) -> FastAPI:
    """Return the routes for Ray's clients, and nothing else of the server."""
    app = FastAPI()
    app.state.scheduler = scheduler
    app.state.cluster_threads = CapacityLimiter(ServerOptions().cluster_threads)
    app.router.routes[:0] = RAY_ROUTES
    app.add_middleware(Recognise)
    return app


class Gateway:
    """A server that runs, and what is behind it."""

    def __init__(self, system: System, address: str) -> None:
        self.system = system
        self.address = address


@asynccontextmanager
async def a_gateway(
    directory: Path,
    *fakes: FakeRay,
    application: Callable[[EmbeddedScheduler], FastAPI] = create_app,
    certificate: Path | None = None,
    **settings: Any,
) -> AsyncIterator[Gateway]:
    """Start the server in the test's own loop: as it is, or for several users; with TLS by a certificate."""
    async with (
        System(directory, *fakes, **settings) as system,
        serving(application(system.scheduler), certificate=certificate) as address,
    ):
        yield Gateway(system, address)
