"""The web application: routes, who may use them, limits and errors, put together in one place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from anyio import CapacityLimiter
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI

from ray_multicluster_scheduler import __version__
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.server import (
    docs_page,
    error_responses,
    health,
    ray_auth,
    ray_jobs,
    ray_logs,
    ray_packages,
    ray_route,
    ray_version,
)
from ray_multicluster_scheduler.server.body_limit import BodyRefused, refuse_body
from ray_multicluster_scheduler.server.door import add_door
from ray_multicluster_scheduler.server.metrics import add_metrics
from ray_multicluster_scheduler.server.observability import watching
from ray_multicluster_scheduler.server.server_options import ServerOptions
from ray_multicluster_scheduler.server.v1 import (
    clusters,
    config,
    events,
    job,
    jobs,
    sessions,
    streams,
    tokens,
)

#: The first that matches answers, and each one before it is tried in vain: what stock clients ask with every
#: submission comes first.
RAY_ROUTES = (
    *ray_version.routes,
    *ray_jobs.routes,
    *ray_packages.routes,
    *ray_logs.routes,
    *ray_route.UNKNOWN,
)
#: Words like `find` come before ids.
ROUTERS = (
    ray_auth.router,
    jobs.router,
    streams.router,
    events.router,
    job.router,
    clusters.router,
    sessions.router,
    tokens.router,
    config.router,
    health.router,
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
    from ray_multicluster_scheduler.server import pages  # noqa: PLC0415 - imports NiceGUI

    add_door(app, scheduler, options, metrics.http, **pages.LOGIN_OPTIONS)
    app.state.dashboard = pages.add_pages(app, scheduler)
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
