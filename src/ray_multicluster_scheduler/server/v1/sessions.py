"""Ray Client sessions. A session is ended like a job: `POST /api/v1/jobs/stop`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from ray_multicluster_scheduler.server.request_caller import allowed
from ray_multicluster_scheduler.server.v1 import bodies
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.local_service import LocalService

router = APIRouter(prefix="/api/v1", tags=["sessions"])


@router.get("/sessions", summary="The open Ray Client sessions")
def sessions(service: Annotated[LocalService, Depends(allowed(Role.READ))]) -> bodies.SessionList:
    """Return the programs that are connected with `ray.init("ray://...")`, or wait for that, oldest first."""
    return bodies.SessionList(sessions=service.sessions())
