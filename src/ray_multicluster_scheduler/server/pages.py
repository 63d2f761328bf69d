"""The dashboard on this server's application: the pages, and how their visitors log in."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from ray_multicluster_scheduler.dashboard.addresses import LOGIN, LOGOUT
from ray_multicluster_scheduler.dashboard.live import Live
from ray_multicluster_scheduler.dashboard.mount import Dashboard, add_dashboard
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.server import login_page
from ray_multicluster_scheduler.server.authentication import shown_credential

#: For `Door`: whoever comes with a browser and without a token is asked for one.
LOGIN_OPTIONS: dict[str, Any] = {
    "public": (LOGIN, LOGOUT),
    "instead": login_page.to_login,
}


def add_pages(app: FastAPI, scheduler: Scheduler) -> Dashboard:
    """Add the pages behind all routes there are, and return what has to run with them."""
    app.include_router(login_page.router)
    dashboard = Dashboard(
        callers=app.state.callers,
        # Not the method itself: a new configuration makes a new service.
        service_for=lambda caller: scheduler.service.as_caller(caller),  # noqa: PLW0108
        live=Live(lambda: scheduler.service),
        shown=lambda request: shown_credential(request.headers),
        reload=lambda caller: scheduler.reload(by=caller),
    )
    add_dashboard(app, dashboard)
    return dashboard
