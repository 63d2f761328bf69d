"""Is this process alive, and can it do its work? For load balancers and service managers."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse

from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.server.request_caller import scheduler_of

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="The process answers")
async def healthz() -> dict[str, str]:
    """Say that this process answers."""
    return {"status": "ok"}


@router.get("/readyz", summary="The store answers, and somebody schedules")
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
