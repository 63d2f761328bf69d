"""What Ray's clients ask before all else: which Ray this is, and whether it is well."""

from __future__ import annotations

import ast
import time
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from anyio import to_thread
from packaging.version import Version
from starlette.requests import Request
from starlette.responses import Response

from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.server.ray_route import RayJSON, RayRoutes
from ray_multicluster_scheduler.server.request_caller import scheduler_of, service_of
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.local_service import LocalService
from ray_multicluster_scheduler.service.query import JobQuery

#: Version of the Jobs interface; beyond 0, clients follow logs over a websocket.
API_VERSION = "4"
#: What is told where neither this machine nor any cluster has a Ray: the oldest that jobs are sent to.
OLDEST_RAY = "2.9.0"

_OPEN = tuple(state for state in JobState if state not in FINAL)

routes = RayRoutes()


@routes.on("GET", "/api/version", role=Role.READ)
async def version(request: Request) -> Response:
    """Tell the installed Ray's version: clients compare it with what they need, before each submission."""
    installed = installed_ray()
    newest = installed.get("version") or await to_thread.run_sync(_newest_on_clusters, service_of(request))
    return RayJSON(
        {
            "version": API_VERSION,
            "ray_version": newest,
            "ray_commit": installed.get("commit") or "0" * 40,
            "session_name": f"session_{scheduler_of(request).store.store_id}",
        }
    )


@routes.on("GET", "/api/component_activities", role=Role.READ)
def component_activities(request: Request) -> Response:
    """Tell whether there are jobs that have not ended: whoever stops idle clusters asks this."""
    service = service_of(request)
    open_jobs = service.list_jobs(JobQuery(states=_OPEN, limit=1)).jobs
    newest = service.list_jobs(JobQuery(limit=1)).jobs
    driver = {
        "is_active": "ACTIVE" if open_jobs else "INACTIVE",
        "reason": "there are jobs that have not ended" if open_jobs else None,
        "timestamp": time.time(),
        "last_activity_at": max((job.changed_at for job in newest), default=None),
    }
    return RayJSON({"driver": driver})


@routes.on("GET", "/api/gcs_healthz", role=None)
def gcs_healthz(request: Request) -> Response:
    """Say that this server and its store are there; KubeRay waits for it. It needs no token in Ray either."""
    scheduler_of(request).store.last_event()
    return Response("success", media_type="application/text; charset=utf-8")


@lru_cache(maxsize=1)
def installed_ray() -> dict[str, Any]:
    """Return `version` and `commit` of the Ray that is installed here, without importing it; or nothing."""
    found = find_spec("ray")
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        path = Path(folder) / "_version.py"
        if path.is_file():
            return _constants(path.read_text())
    return {}


def _constants(text: str) -> dict[str, Any]:
    return {
        target.id: node.value.value
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _newest_on_clusters(service: LocalService) -> str:
    known = [cluster.ray_version for cluster in service.clusters() if cluster.ray_version]
    return max(known, key=_comparable, default=OLDEST_RAY)


def _comparable(version: str) -> Version:
    try:
        return Version(version)
    except ValueError:  # also of a number that is too long for Python
        return Version("0")
