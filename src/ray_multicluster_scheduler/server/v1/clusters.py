"""Clusters, what runs there, why jobs wait, who schedules, and who asks."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from starlette.requests import HTTPConnection

from ray_multicluster_scheduler.config.load import ConfigChange
from ray_multicluster_scheduler.model.job import Lease
from ray_multicluster_scheduler.server.authentication import (
    allowed,
    caller_of,
    in_cluster_thread,
    scheduler_of,
)
from ray_multicluster_scheduler.server.v1 import bodies
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.service import LocalService
from ray_multicluster_scheduler.service.views import CallerView, ConfigView, ProcessList

router = APIRouter(prefix="/api/v1", tags=["clusters"])
Reading = Annotated[LocalService, Depends(allowed(Role.READ))]
Submitting = Annotated[LocalService, Depends(allowed(Role.SUBMIT))]
Operating = Annotated[LocalService, Depends(allowed(Role.OPERATE))]
ReadingAll = Annotated[LocalService, Depends(allowed(Role.READ_ALL))]


@router.get("/clusters", summary="Every cluster, with what was last seen of it")
def clusters(service: Reading) -> bodies.ClusterList:
    """Return every configured cluster; what is unknown is null."""
    return bodies.ClusterList(clusters=service.clusters())


@router.post("/clusters/{name}/{action}", summary="Take a cluster out of service, or back")
def drain(
    service: Operating, name: str, action: Literal["drain", "undrain"], given: bodies.Drain | None = None
) -> bodies.Drained:
    """Let a cluster have no new jobs, or let it have them again; what runs there may end."""
    drained = action == "drain"
    service.set_drained(name, drained=drained, reason="" if given is None else given.reason)
    return bodies.Drained(cluster=name, drained=drained)


@router.get("/wait-reasons", summary="Why jobs wait, in numbers")
def wait_reasons(service: Reading) -> bodies.WaitList:
    """Return for each reason how many jobs in the queue wait for it, whosever they are."""
    return bodies.WaitList(waits=service.wait_reasons())


@router.get("/processes", summary="What runs inside the clusters")
async def processes(service: ReadingAll, connection: HTTPConnection) -> ProcessList:
    """Ask every cluster for its jobs, actors, tasks, bridges and sessions, ours or not."""
    return await in_cluster_thread(connection, service.processes)


@router.post("/doctor", summary="Check clusters with a short job on each")
async def run_doctor(
    service: Submitting, connection: HTTPConnection, given: bodies.RunDoctor | None = None
) -> bodies.Reports:
    """Examine clusters as `raymc doctor --run` does; the answer comes when all of the jobs have ended."""
    asked = given or bodies.RunDoctor()
    run = partial(service.run_doctor, asked.clusters, timeout_s=asked.timeout_s)
    return bodies.Reports(clusters=await in_cluster_thread(connection, run))


@router.get("/leader", summary="Who schedules now")
def leader(service: Reading) -> Lease | None:
    """Return the process that schedules now; null: nobody does."""
    return service.leader()


@router.get("/me", summary="Who the caller is")
def me(service: Reading) -> CallerView:
    """Return whose jobs the caller submits, and in what role."""
    return service.me()


# The configuration of the server.


config_router = APIRouter(prefix="/api/v1", tags=["server"])
Administering = Annotated[LocalService, Depends(allowed(Role.ADMIN))]


@config_router.get("/config", summary="The configuration as it was loaded")
def configuration(service: ReadingAll) -> ConfigView:
    """Return what clusters.yaml says, with defaults filled in and secrets hidden."""
    return service.configuration()


@config_router.post("/config/reload", summary="Read clusters.yaml again")
def reload(service: Administering, connection: HTTPConnection) -> ConfigChange:  # noqa: ARG001 - the role
    """Go on with what the file says now; jobs go on. A wrong file changes nothing."""
    return scheduler_of(connection).reload(by=caller_of(connection))


# Ray Client sessions. A session is ended like a job: `POST /api/v1/jobs/stop`.


sessions_router = APIRouter(prefix="/api/v1", tags=["sessions"])


@sessions_router.get("/sessions", summary="The open Ray Client sessions")
def sessions(service: Annotated[LocalService, Depends(allowed(Role.READ))]) -> bodies.SessionList:
    """Return the programs that are connected with `ray.init("ray://...")`, or wait for that, oldest first."""
    return bodies.SessionList(sessions=service.sessions())
