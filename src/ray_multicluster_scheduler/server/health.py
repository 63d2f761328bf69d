"""Is this process alive, and can it do its work? For load balancers and service managers."""

from __future__ import annotations

from typing import Any

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
    found = {"store": "ok", "engine": "ok", "leader": "ok"}
    scheduler = scheduler_of(connection)
    for part, look in (("engine", scheduler.check), ("store", scheduler.service.leader)):
        try:
            seen: Any = look()
        except SchedulerError as problem:
            found[part] = type(problem).__name__
            seen = None
        if part == "store" and seen is None:
            found["leader"] = "nobody schedules now"
    ready = set(found.values()) == {"ok"}
    return JSONResponse({"status": "ok" if ready else "not ready", **found}, 200 if ready else 503)
