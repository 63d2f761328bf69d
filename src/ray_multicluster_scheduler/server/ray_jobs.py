"""Ray's Jobs interface over all clusters: what `ray job` and `JobSubmissionClient` speak.

Reads come from the store. What no client depends on is better said than by Ray: no paths, no tracebacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from ray_multicluster_scheduler.errors import DuplicateSubmission, InvalidRequest, JobNotFound
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.server.cluster_threads import in_cluster_thread
from ray_multicluster_scheduler.server.ray_details import job_details
from ray_multicluster_scheduler.server.ray_route import (
    RayJSON,
    is_browser,
    ray_router,
    refusal,
    refuse_other_methods,
)
from ray_multicluster_scheduler.server.ray_submit import request_of
from ray_multicluster_scheduler.server.request_caller import allowed, caller_of
from ray_multicluster_scheduler.server.wait_reason_cache import WaitReasonCache
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.local_service import LocalService
from ray_multicluster_scheduler.service.query import JobQuery, all_jobs
from ray_multicluster_scheduler.service.views import JobView

#: Ray's list has no pages: this is how many jobs of the caller it shows, the newest.
MOST_LISTED = 10_000

Reader = Annotated[LocalService, Depends(allowed(Role.READ))]
Submitter = Annotated[LocalService, Depends(allowed(Role.SUBMIT))]

router = ray_router()
_wait_reasons = WaitReasonCache()


async def _body(request: Request) -> bytes:
    """Read the body, whose size was looked at before it came here."""
    return await request.body()


@router.post("/api/jobs")
@router.post("/api/jobs/")
def submit(request: Request, service: Submitter, body: Annotated[bytes, Depends(_body)]) -> Response:
    """Accept a job; it is on disk when this answers."""
    asked = request_of(body, user=caller_of(request).user)
    try:
        (job,) = service.submit([asked])
    except DuplicateSubmission:
        # With this status: clients repeat a submission, and take these words for "it has arrived before".
        return refusal(
            500,
            f"ValueError: Job with submission_id {asked.submission_id} already exists. "
            "Please use a different submission_id.",
        )
    return RayJSON({"job_id": job.submission_id, "submission_id": job.submission_id})


@router.api_route("/api/jobs", methods=["GET", "HEAD"])
@router.api_route("/api/jobs/", methods=["GET", "HEAD"])
def list_jobs(request: Request, service: Reader) -> Response:
    """Return the caller's jobs, newest first."""
    browser = is_browser(request.headers)
    found = all_jobs(service, JobQuery(), limit=MOST_LISTED)
    return RayJSON([job_details(job, browser=browser) for job in found])


@router.api_route("/api/jobs/{submission_id}", methods=["GET", "HEAD"])
def get_job(submission_id: str, request: Request, service: Reader) -> Response:
    """Return one job; of one that waits, why and where it stands."""
    job = found(service, submission_id)
    told: dict[str, Any] = {}
    if job.state is JobState.QUEUED:
        told["why"] = _wait_reasons.reason(service, job)
    elif job.state is JobState.FAILED:
        told["log"] = service.kept_log(submission_id) or ""
    return RayJSON(job_details(job, browser=is_browser(request.headers), **told))


@router.delete("/api/jobs/{submission_id}")
async def delete_job(submission_id: str, request: Request, service: Submitter) -> Response:
    """Forget a job that has ended; its id is free again."""
    return await in_cluster_thread(request, partial(_deleted, service, submission_id))


def _deleted(service: LocalService, submission_id: str) -> Response:
    job = found(service, submission_id)
    if not job.final:
        return refusal(
            500,
            f"RuntimeError: Attempted to delete job '{submission_id}', but it is in a non-terminal state "
            f"{job.status}.",
        )
    service.delete([submission_id])
    return RayJSON({"deleted": True})


@router.post("/api/jobs/{submission_id}/stop")
def stop_job(submission_id: str, service: Submitter) -> Response:
    """Ask for a job to be stopped, wherever it is; false: it had ended."""
    if found(service, submission_id).final:
        return RayJSON({"stopped": False})
    service.stop([submission_id])
    return RayJSON({"stopped": True})


def found(service: LocalService, submission_id: str) -> JobView:
    """Return a job of the caller; an id that cannot be one is as unknown as any other."""
    try:
        known: Mapping[str, JobView] = service.get_many([submission_id])
    except InvalidRequest:
        known = {}
    if submission_id not in known:
        raise JobNotFound(submission_id)
    return known[submission_id]


refuse_other_methods(
    router, "/api/jobs", "/api/jobs/", "/api/jobs/{submission_id}", "/api/jobs/{submission_id}/stop"
)
