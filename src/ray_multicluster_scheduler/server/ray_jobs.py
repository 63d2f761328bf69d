"""Ray's Jobs interface over all clusters: what `ray job` and `JobSubmissionClient` speak.

Reads come from the store. What no client depends on is better said than by Ray: no paths, no tracebacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from ray_multicluster_scheduler.errors import DuplicateSubmission, InvalidRequest, JobNotFound
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.server.cluster_threads import in_cluster_thread
from ray_multicluster_scheduler.server.ray_details import job_details
from ray_multicluster_scheduler.server.ray_route import RayJSON, RayRoutes, is_browser, refusal
from ray_multicluster_scheduler.server.ray_submit import request_of
from ray_multicluster_scheduler.server.request_caller import caller_of, service_of
from ray_multicluster_scheduler.server.wait_reason_cache import WaitReasonCache
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.local_service import LocalService
from ray_multicluster_scheduler.service.query import JobQuery, all_jobs
from ray_multicluster_scheduler.service.views import JobView

#: Ray's list has no pages: this is how many jobs of the caller it shows, the newest.
MOST_LISTED = 10_000

_JOB = "/api/jobs/{submission_id}"

routes = RayRoutes()
_wait_reasons = WaitReasonCache()


@routes.on("POST", "/api/jobs/", "/api/jobs", role=Role.SUBMIT)
async def submit(request: Request) -> Response:
    """Accept a job; it is on disk when this answers."""
    return await run_in_threadpool(_submitted, request, await request.body())


def _submitted(request: Request, body: bytes) -> Response:
    asked = request_of(body, user=caller_of(request).user)
    try:
        (job,) = service_of(request).submit([asked])
    except DuplicateSubmission:
        # With this status: clients repeat a submission, and take these words for "it has arrived before".
        return refusal(
            500,
            f"ValueError: Job with submission_id {asked.submission_id} already exists. "
            "Please use a different submission_id.",
        )
    return RayJSON({"job_id": job.submission_id, "submission_id": job.submission_id})


@routes.on("GET", "/api/jobs/", "/api/jobs", role=Role.READ)
def list_jobs(request: Request) -> Response:
    """Return the caller's jobs, newest first."""
    browser = is_browser(request)
    found = all_jobs(service_of(request), JobQuery(), limit=MOST_LISTED)
    return RayJSON([job_details(job, browser=browser) for job in found])


@routes.on("GET", _JOB, role=Role.READ)
def get_job(request: Request) -> Response:
    """Return one job; of one that waits, why and where it stands."""
    service = service_of(request)
    job = found(request, service)
    told: dict[str, Any] = {}
    if job.state is JobState.QUEUED:
        told["why"] = _wait_reasons.reason(service, job)
    elif job.state is JobState.FAILED:
        told["log"] = service.kept_log(job.submission_id) or ""
    return RayJSON(job_details(job, browser=is_browser(request), **told))


@routes.on("DELETE", _JOB, role=Role.SUBMIT)
async def delete_job(request: Request) -> Response:
    """Forget a job that has ended; its id is free again."""
    return await in_cluster_thread(request, partial(_deleted, request))


def _deleted(request: Request) -> Response:
    service = service_of(request)
    job = found(request, service)
    if not job.final:
        return refusal(
            500,
            f"RuntimeError: Attempted to delete job '{job.submission_id}', but it is in a non-terminal state "
            f"{job.status}.",
        )
    service.delete([job.submission_id])
    return RayJSON({"deleted": True})


@routes.on("POST", f"{_JOB}/stop", role=Role.SUBMIT)
def stop_job(request: Request) -> Response:
    """Ask for a job to be stopped, wherever it is; false: it had ended."""
    service = service_of(request)
    job = found(request, service)
    if not job.final:
        service.stop([job.submission_id])
    return RayJSON({"stopped": not job.final})


def found(connection: HTTPConnection, service: LocalService) -> JobView:
    """Return the job that a path names; an id that cannot be one is as unknown as somebody else's."""
    submission_id = connection.path_params["submission_id"]
    try:
        known: Mapping[str, JobView] = service.get_many([submission_id])
    except InvalidRequest:
        known = {}
    if submission_id not in known:
        raise JobNotFound(submission_id)
    return known[submission_id]
