"""The caller of a request, and the service for this caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from starlette.requests import HTTPConnection

from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.service.local_service import LocalService


def scheduler_of(connection: HTTPConnection) -> Scheduler:
    """Return the scheduler behind this server."""
    return cast(Scheduler, connection.app.state.scheduler)


def caller_of(connection: HTTPConnection) -> Caller:
    """Return the caller that the authentication has found."""
    return cast(Caller, connection.state.caller)


def service_of(connection: HTTPConnection) -> LocalService:
    """Return the service as the caller sees it."""
    return scheduler_of(connection).service.as_caller(caller_of(connection))


def allowed(role: Role) -> Callable[[HTTPConnection], Awaitable[LocalService]]:
    """Return the dependency of a route that needs this role: the service as the caller sees it."""

    async def service(connection: HTTPConnection) -> LocalService:
        caller_of(connection).check(role)
        return service_of(connection)

    service.role = role  # type: ignore[attr-defined]  # the test of all routes reads it
    return service
