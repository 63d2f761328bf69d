"""One job: all that is known of it."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.requests import HTTPConnection

from ray_multicluster_scheduler.server.cluster_threads import in_cluster_thread
from ray_multicluster_scheduler.server.request_caller import allowed
from ray_multicluster_scheduler.server.v1 import bodies
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.local_service import LocalService
from ray_multicluster_scheduler.service.query import EVENTS, MOST_EVENTS
from ray_multicluster_scheduler.service.views import Explanation, JobDetail

router = APIRouter(prefix="/api/v1/jobs/{submission_id}", tags=["one job"])
Reading = Annotated[LocalService, Depends(allowed(Role.READ))]
Submitting = Annotated[LocalService, Depends(allowed(Role.SUBMIT))]


@router.get("", summary="All that is known of a job")
async def detail(service: Reading, connection: HTTPConnection, submission_id: str) -> JobDetail:
    """Return a job with its attempts and the log so far."""
    return await in_cluster_thread(connection, partial(service.detail, submission_id))


@router.delete("", summary="Delete a job that has ended")
async def delete(service: Submitting, connection: HTTPConnection, submission_id: str) -> bodies.Deleted:
    """Forget a job with its log, here and on its clusters; its id is free again."""
    await in_cluster_thread(connection, partial(service.delete, [submission_id]))
    return bodies.Deleted(deleted=(submission_id,))


@router.get("/events", summary="What has happened to a job")
def events(
    service: Reading,
    submission_id: str,
    after: Annotated[int, Query(ge=0, le=2**53, description="Only what came after this event.")] = 0,
    limit: Annotated[int, Query(ge=0, le=MOST_EVENTS)] = EVENTS,
) -> bodies.EventList:
    """Return every move of a job, in order."""
    return bodies.EventList(events=service.events(submission_id, after=after, limit=limit))


@router.get("/attempts", summary="On which clusters a job was placed")
def attempts(service: Reading, submission_id: str) -> bodies.AttemptList:
    """Return the last placements of a job, oldest first, each with what was sent there and how it ended."""
    return bodies.AttemptList(attempts=service.attempts(submission_id))


@router.get("/logs", summary="The log of a job")
async def logs(
    service: Reading,
    connection: HTTPConnection,
    submission_id: str,
    attempt: Annotated[
        int | None, Query(ge=0, le=2**31, description="Which attempt; the last one by default.")
    ] = None,
) -> bodies.Log:
    """Return the log of an attempt, from its cluster while it runs."""
    found = await in_cluster_thread(connection, partial(service.log, submission_id, attempt))
    return bodies.Log(logs=found)


@router.get("/explain", summary="Why a job is where it is")
def explain(service: Reading, submission_id: str) -> Explanation:
    """Say why a job is where it is, and what would let it start."""
    return service.explain(submission_id)
