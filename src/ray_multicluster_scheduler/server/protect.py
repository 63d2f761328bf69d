"""Middleware before all routes: host names and origins, authentication, rate limits."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from ray_multicluster_scheduler.config.user import this_user
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.server.allow_list import AllowList
from ray_multicluster_scheduler.server.authentication import Authentication
from ray_multicluster_scheduler.server.limits import Limits
from ray_multicluster_scheduler.server.server_options import ServerOptions
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.service.callers import Callers
from ray_multicluster_scheduler.service.refused_logins import RefusedLogins


def protect(app: FastAPI, scheduler: Scheduler, options: ServerOptions, **login: Any) -> None:
    """Add the middleware; what is added after it sees requests before it, those that it refuses as well.

    `login`: how `Authentication` treats browsers, where there are pages for them.
    """
    settings = scheduler.config.server
    logins = app.state.refused_logins = RefusedLogins(scheduler.access, scheduler.clock)
    callers = app.state.callers = Callers(
        scheduler.authenticator,
        logins,
        always=not options.loopback,
        local=Caller(user=this_user(), role=Role.ADMIN),
    )
    origins = (*settings.allowed_origins, *options.allowed_origins)
    app.add_middleware(Limits, settings=settings)
    app.add_middleware(
        Authentication,
        callers=callers,
        allow_list=AllowList(
            bind=options.host, hosts=(*settings.allowed_hosts, *options.names), origins=origins
        ),
        **login,
    )
    if origins:  # before authentication: a browser asks beforehand, without credentials
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID"],
        )
