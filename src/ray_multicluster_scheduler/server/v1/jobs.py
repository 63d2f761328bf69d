"""Jobs: submit, find, list, stop, run again, delete."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.requests import HTTPConnection

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.server.authentication import allowed, caller_of, in_cluster_thread
from ray_multicluster_scheduler.server.v1 import bodies
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.query import (
    EVENTS,
    MOST_EVENTS,
    MOST_PAGE_JOBS,
    MOST_SPANS,
    PAGE_JOBS,
    SPANS,
    JobQuery,
)
from ray_multicluster_scheduler.service.request import array_of, parse_array
from ray_multicluster_scheduler.service.service import LocalService
from ray_multicluster_scheduler.service.views import (
    Explanation,
    JobDetail,
    JobPage,
    JobView,
    PlanView,
    PruneView,
    ResultView,
    TimelineView,
)

router = APIRouter(prefix="/api/v1", tags=["jobs"])
Reading = Annotated[LocalService, Depends(allowed(Role.READ))]
Submitting = Annotated[LocalService, Depends(allowed(Role.SUBMIT))]
Administering = Annotated[LocalService, Depends(allowed(Role.ADMIN))]
States = Annotated[list[JobState] | None, Query(description="In one of these states.")]


@router.get("/jobs", summary="List jobs, newest first")
def list_jobs(
    service: Reading,
    *,
    state: States = None,
    user: str | None = None,
    cluster: str | None = None,
    job_id: str | None = None,
    group: str | None = None,
    tag: str | None = None,
    parent: Annotated[str | None, Query(description="Submitted by the program of this job.")] = None,
    since: Annotated[
        float | None, Query(allow_inf_nan=False, description="Accepted at or after this time (epoch).")
    ] = None,
    changed_since: Annotated[
        float | None, Query(allow_inf_nan=False, description="In its state since this time (epoch) or later.")
    ] = None,
    changed_until: Annotated[
        float | None, Query(allow_inf_nan=False, description="In its state since before this time (epoch).")
    ] = None,
    wait_reason: Annotated[str | None, Query(description="Waits in the queue for this reason.")] = None,
    text: Annotated[str | None, Query(description="A part of the id, the name or the command.")] = None,
    heads_only: Annotated[
        bool, Query(description="One job for each array, group or chain of dependencies: the first of it.")
    ] = False,
    head: Annotated[str | None, Query(description="This job and those that are listed under it.")] = None,
    limit: Annotated[int, Query(ge=0, le=MOST_PAGE_JOBS)] = PAGE_JOBS,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before.")] = None,
) -> JobPage:
    """Return jobs that match every given filter; `next_cursor` gets the following ones.

    With `heads_only`, filters are about these jobs themselves, and `members` counts what they stand for.
    """
    return service.list_jobs(
        JobQuery(
            states=None if state is None else tuple(state),
            user=user,
            cluster=cluster,
            job_id=job_id,
            group=group,
            tag=tag,
            parent=parent,
            since=since,
            changed_since=changed_since,
            changed_until=changed_until,
            wait_reason=wait_reason,
            text=text,
            heads_only=heads_only,
            head=head,
            limit=limit,
            cursor=cursor,
        )
    )


@router.post("/jobs", status_code=201, summary="Submit a job")
def submit(service: Submitting, connection: HTTPConnection, job: bodies.JobBody) -> JobView:
    """Accept a job; it is on disk when this answers.

    Whoever repeats a request whose answer was lost gives a `submission_id` or an `idempotency_key`.
    """
    return service.submit([job.request(caller_of(connection))])[0]


@router.post("/jobs/batch", status_code=201, summary="Submit several jobs, all or none")
def submit_batch(service: Submitting, connection: HTTPConnection, batch: bodies.Batch) -> bodies.JobList:
    """Accept jobs in one transaction."""
    caller = caller_of(connection)
    return bodies.JobList(jobs=service.submit([job.request(caller) for job in batch.jobs]))


@router.post("/jobs/array", status_code=201, summary="Submit an array of jobs")
def submit_array(service: Submitting, connection: HTTPConnection, array: bodies.Array) -> bodies.JobList:
    """Accept one job for each index; they share a group."""
    request = array.job.request(caller_of(connection))
    return bodies.JobList(jobs=service.submit(array_of(request, parse_array(array.indices))))


@router.post("/plan", summary="Say what would happen to a job")
def plan(service: Submitting, connection: HTTPConnection, job: bodies.JobBody) -> PlanView:
    """Say where a job would go if it were submitted now; nothing is stored or sent."""
    return service.plan(job.request(caller_of(connection)))


@router.get("/jobs/find", summary="Find jobs by a word")
def find(service: Reading, word: str) -> bodies.JobList:
    """Return the jobs that a word means: an id or its beginning, a `job_id`, a group."""
    return bodies.JobList(jobs=service.find(word))


@router.post("/jobs/find-each", summary="Find one job for each word")
def find_each(service: Reading, given: bodies.Words) -> bodies.JobList:
    """Return for each word the job with this id, else the newest with this `job_id`."""
    return bodies.JobList(jobs=service.find_each(given.words))


@router.post("/jobs/get-many", summary="Get several jobs by their ids")
def get_many(service: Reading, given: bodies.SubmissionIds) -> bodies.JobsById:
    """Return the known ones among these ids."""
    return bodies.JobsById(jobs=service.get_many(given.submission_ids))


@router.post("/jobs/stop", summary="Stop jobs")
def stop(service: Submitting, given: bodies.Stop) -> bodies.JobList:
    """Ask for jobs to be stopped, wherever they are; returns them as they are now."""
    return bodies.JobList(jobs=service.stop(given.submission_ids, reason=given.reason))


@router.post("/jobs/retry", summary="Run jobs again")
def retry(service: Submitting, given: bodies.SubmissionIds) -> bodies.JobList:
    """Accept new jobs that do the same as those of these that have failed or were stopped."""
    return bodies.JobList(jobs=service.retry(given.submission_ids))


@router.post("/jobs/delete", summary="Delete jobs that have ended, all or none")
async def delete(
    service: Submitting, connection: HTTPConnection, given: bodies.SubmissionIds
) -> bodies.Deleted:
    """Forget jobs with their logs, here and on their clusters; their ids are free again."""
    await in_cluster_thread(connection, partial(service.delete, given.submission_ids))
    return bodies.Deleted(deleted=tuple(dict.fromkeys(given.submission_ids)))


@router.get("/timeline", summary="What was on which cluster when")
def timeline(
    service: Reading,
    since: Annotated[float, Query(ge=0, allow_inf_nan=False, description="From this time on (epoch).")],
    until: Annotated[
        float | None, Query(ge=0, allow_inf_nan=False, description="Up to this time; now by default.")
    ] = None,
    cluster: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_SPANS)] = SPANS,
) -> TimelineView:
    """Return the attempts that were on their clusters in this time; of too many, the newest."""
    return service.timeline(since=since, until=until, cluster=cluster, limit=limit)


@router.get("/counts", summary="Count jobs by state")
def counts(
    service: Reading,
    state: States = None,
    changed_since: Annotated[
        float | None, Query(allow_inf_nan=False, description="In its state since this time (epoch) or later.")
    ] = None,
) -> bodies.Counts:
    """Return how many jobs are in each of these states; without any, in every state."""
    states = list(JobState) if state is None else state
    return bodies.Counts(counts=service.counts(states, changed_since=changed_since))


@router.get("/queue", summary="What waits, the next one first")
def queue(
    service: Reading, limit: Annotated[int, Query(ge=0, le=MOST_PAGE_JOBS)] = MOST_PAGE_JOBS
) -> bodies.JobList:
    """Return what may start now, in its order, then what waits for something else than room."""
    return bodies.JobList(jobs=service.queue(limit=limit))


@router.post("/prune", summary="Remove old history")
def prune(service: Administering, given: bodies.Prune | None = None) -> PruneView:
    """Remove jobs that ended long ago, by the settings or by these rules; or say what would go."""
    asked = given or bodies.Prune()
    return service.prune(older_than_s=asked.older_than_s, keep=asked.keep, dry_run=asked.dry_run)


# One job: all that is known of it.


job_router = APIRouter(prefix="/api/v1/jobs/{submission_id}", tags=["one job"])


@job_router.get("", summary="All that is known of a job")
async def detail(service: Reading, connection: HTTPConnection, submission_id: str) -> JobDetail:
    """Return a job with its attempts and the log so far."""
    return await in_cluster_thread(connection, partial(service.detail, submission_id))


@job_router.delete("", summary="Delete a job that has ended")
async def delete_job(service: Submitting, connection: HTTPConnection, submission_id: str) -> bodies.Deleted:
    """Forget a job with its log, here and on its clusters; its id is free again."""
    await in_cluster_thread(connection, partial(service.delete, [submission_id]))
    return bodies.Deleted(deleted=(submission_id,))


@job_router.get("/events", summary="What has happened to a job")
def events(
    service: Reading,
    submission_id: str,
    after: Annotated[int, Query(ge=0, le=2**53, description="Only what came after this event.")] = 0,
    limit: Annotated[int, Query(ge=0, le=MOST_EVENTS)] = EVENTS,
) -> bodies.EventList:
    """Return every move of a job, in order."""
    return bodies.EventList(events=service.events(submission_id, after=after, limit=limit))


@job_router.get("/attempts", summary="On which clusters a job was placed")
def attempts(service: Reading, submission_id: str) -> bodies.AttemptList:
    """Return the last placements of a job, oldest first, each with what was sent there and how it ended."""
    return bodies.AttemptList(attempts=service.attempts(submission_id))


@job_router.get("/logs", summary="The log of a job")
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


@job_router.get("/result", summary="The result of a job")
def result(service: Reading, submission_id: str) -> ResultView:
    """Return what the last attempt of a job that has ended has left; 404 says why there is nothing."""
    return service.result(submission_id)


@job_router.get("/explain", summary="Why a job is where it is")
def explain(service: Reading, submission_id: str) -> Explanation:
    """Say why a job is where it is, and what would let it start."""
    return service.explain(submission_id)
