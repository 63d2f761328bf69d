"""404 answers below the paths of Ray's clients, in the form that they read. This router comes last."""

from __future__ import annotations

from fastapi import Depends
from starlette.responses import Response

from ray_multicluster_scheduler.server.ray_route import METHODS, ray_router, refusal
from ray_multicluster_scheduler.server.request_caller import allowed
from ray_multicluster_scheduler.service.caller import Role

router = ray_router()


@router.api_route("/api/jobs/{rest:path}", methods=list(METHODS), dependencies=[Depends(allowed(Role.READ))])
@router.api_route(
    "/api/packages/{rest:path}", methods=list(METHODS), dependencies=[Depends(allowed(Role.READ))]
)
def no_such_path() -> Response:
    """Say that it is not there; an id with a slash leads here too."""
    return refusal(404, "404: Not Found")
