"""The configuration of the server."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import HTTPConnection

from ray_multicluster_scheduler.server.request_caller import allowed, caller_of, scheduler_of
from ray_multicluster_scheduler.server.v1 import bodies
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.local_service import LocalService
from ray_multicluster_scheduler.service.views import ConfigView

router = APIRouter(prefix="/api/v1", tags=["server"])
ReadingAll = Annotated[LocalService, Depends(allowed(Role.READ_ALL))]
Administering = Annotated[LocalService, Depends(allowed(Role.ADMIN))]


@router.get("/config", summary="The configuration as it was loaded")
def configuration(service: ReadingAll) -> ConfigView:
    """Return what clusters.yaml says, with defaults filled in and secrets hidden."""
    return service.configuration()


@router.post("/config/reload", summary="Read clusters.yaml again")
def reload(service: Administering, connection: HTTPConnection) -> bodies.Reloaded:  # noqa: ARG001 - the role
    """Go on with what the file says now; jobs go on. A wrong file changes nothing."""
    change = scheduler_of(connection).reload(by=caller_of(connection))
    return bodies.Reloaded(
        added=change.added, changed=change.changed, removed=change.removed, settings=change.settings
    )
