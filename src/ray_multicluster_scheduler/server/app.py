"""The web application: routes, who may use them, limits and errors, put together in one place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from anyio import CapacityLimiter
from anyio.to_thread import current_default_thread_limiter
from fastapi import APIRouter, FastAPI
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse

from ray_multicluster_scheduler import __version__
from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.server import docs_page, error_responses, ray_jobs, ray_route
from ray_multicluster_scheduler.server.authentication import scheduler_of
from ray_multicluster_scheduler.server.door import add_door
from ray_multicluster_scheduler.server.metrics import add_metrics, watching
from ray_multicluster_scheduler.server.protocol import BodyRefused, refuse_body
from ray_multicluster_scheduler.server.server_options import ServerOptions
from ray_multicluster_scheduler.server.v1 import clusters, events, jobs, tokens

# Is this process alive, and can it do its work? For load balancers and service managers.


health_router = APIRouter(tags=["health"])


@health_router.get("/healthz", summary="The process answers")
async def healthz() -> dict[str, str]:
    """Say that this process answers."""
    return {"status": "ok"}


@health_router.get("/readyz", summary="The store answers, and somebody schedules")
def readyz(connection: HTTPConnection) -> JSONResponse:
    """Look at the store and at the leader; 503 names what is missing."""
    scheduler = scheduler_of(connection)
    found = {"store": "ok", "engine": scheduler.engine_problem() or "ok", "leader": "ok"}
    try:
        leader = scheduler.service.leader()
    except SchedulerError as problem:
        found["store"], leader = type(problem).__name__, None
    if leader is None:
        found["leader"] = "nobody schedules now"
    ready = set(found.values()) == {"ok"}
    return JSONResponse({"status": "ok" if ready else "not ready", **found}, 200 if ready else 503)


#: Routes are tried in order, and a miss costs time: those that stock clients ask with every submission come
#: first.
RAY_ROUTES = (
    *ray_route.routes,
    *ray_jobs.routes,
    *ray_jobs.routes,
    *ray_jobs.routes,
    *ray_route.UNKNOWN,
)
#: Words like `find` come before ids.
ROUTERS = (
    ray_route.router,
    jobs.router,
    events.streams_router,
    events.router,
    jobs.job_router,
    clusters.router,
    clusters.sessions_router,
    tokens.router,
    clusters.config_router,
    health_router,
    docs_page.router,
)


def routes_alone() -> FastAPI:
    """Return the routes with nothing behind them: enough to say what there is."""
    app = FastAPI(
        title="ray_multicluster_scheduler",
        version=__version__,
        docs_url=None,  # FastAPI's own pages load their parts from another host
        redoc_url=None,
        responses={"default": {"model": error_responses.ErrorAnswer, "description": "Something went wrong."}},
        lifespan=_lifespan,
    )
    app.router.routes[:0] = RAY_ROUTES
    for router in ROUTERS:
        app.include_router(router)
    error_responses.install(app)
    return app


def create_app(scheduler: Scheduler, options: ServerOptions | None = None) -> FastAPI:
    """Return the web application over one scheduler, which its caller starts and stops."""
    options = options or ServerOptions()
    app = routes_alone()
    app.state.scheduler = scheduler
    app.state.options = options
    #: Set when the server is about to end: what streams ends, so that clients go on elsewhere.
    app.state.stopping = asyncio.Event()
    app.add_exception_handler(BodyRefused, refuse_body)
    metrics = add_metrics(app, scheduler)
    if not options.dashboard:
        add_door(app, scheduler, options, metrics.http)
        return app
    from ray_multicluster_scheduler.server import login_page  # noqa: PLC0415 - imports NiceGUI

    add_door(app, scheduler, options, metrics.http, **login_page.LOGIN_OPTIONS)
    app.state.dashboard = login_page.add_pages(app, scheduler)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    options: ServerOptions = app.state.options
    current_default_thread_limiter().total_tokens = options.threads
    app.state.cluster_threads = CapacityLimiter(options.cluster_threads)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(watching(app.state.scheduler, app.state.metrics))
        if options.dashboard:
            await stack.enter_async_context(app.state.dashboard.running())
        yield
