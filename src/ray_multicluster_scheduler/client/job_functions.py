"""Jobs: submit, look, stop, wait."""

from __future__ import annotations

import asyncio
import inspect
import logging
import warnings
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from ray_multicluster_scheduler.client.current import get_unified_scheduler, keep_scheduled, working_scheduler
from ray_multicluster_scheduler.client.job import Job, Jobs, JobStatus, state_of, time_of
from ray_multicluster_scheduler.client.job_info import JobInfo
from ray_multicluster_scheduler.client.packing import handed_over, telling_of_working_dir
from ray_multicluster_scheduler.client.scope import remembered
from ray_multicluster_scheduler.client.tracebacks import ends_at_the_caller, stacklevel_of_the_caller
from ray_multicluster_scheduler.config.find import this_job, this_user
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.execution import DEFAULT_EXECUTOR
from ray_multicluster_scheduler.model.job_options import OnUnreachable
from ray_multicluster_scheduler.service import arguments
from ray_multicluster_scheduler.service.arguments import shown, words
from ray_multicluster_scheduler.service.query import JobQuery, all_jobs, one_job
from ray_multicluster_scheduler.service.request import JobRequest
from ray_multicluster_scheduler.text import did_you_mean

log = logging.getLogger(__name__)


@ends_at_the_caller
def submit_job(
    entrypoint: str,
    runtime_env: dict[str, Any] | None = None,
    job_id: str | None = None,
    metadata: dict[str, Any] | None = None,
    submission_id: str | None = None,
    preferred_cluster: str | None = None,
    resource_requirements: dict[str, float] | None = None,
    tags: list[str] | None = None,
    *,
    priority: int = 0,
    depends_on: Sequence[str] = (),
    executor: str = DEFAULT_EXECUTOR,
    max_retries: int = 0,
    timeout_s: float | None = None,
    queue_timeout_s: float | None = None,
    user: str | None = None,
    on_unreachable: OnUnreachable = "wait",
    entrypoint_num_cpus: float | None = None,
    entrypoint_num_gpus: float | None = None,
    entrypoint_memory: int | None = None,
    entrypoint_resources: Mapping[str, float] | None = None,
    entrypoint_label_selector: Mapping[str, str] | None = None,
    idempotency_key: str | None = None,
    group: str | None = None,
    parent: str | None = None,
    stop_children: bool = False,
    only_cluster: str | None = None,
    only_tags: Sequence[str] = (),
) -> Job:
    """Accept a job and return its submission id, which is a `Job`: `job.logs()`, `job.wait()`, `job.stop()`.

    It is durable when this returns; a cluster is found later.

    Args:
        entrypoint: The shell command. Scripts by absolute path, unless the `runtime_env` of the job, or of
            every cluster, has a `working_dir`.
        runtime_env: The job's own environment; the chosen cluster's comes first, the job's keys win.
        job_id: Your own name for the job; `job_<uuid>` by default. Several may have the same one, such as
            those of every night: it means the newest of them, wherever a submission id is asked for.
        metadata: Text that travels with the job. Keys such as `raymc.priority` are options too.
        submission_id: The id to use; `sub_<uuid>` by default.
        preferred_cluster: Goes first; another cluster is taken when it cannot have the job now.
        resource_requirements: `CPU`, `GPU`, `memory` (GiB, or bytes from 2**20) and custom names: what the
            whole job needs. One CPU when nothing is said.
        tags: Clusters with the same tags are favoured.
        priority: Higher goes first.
        depends_on: Submission ids that must succeed before this job starts.
        executor: What runs it on its cluster: `ray-jobs` is Ray's own Jobs API; packages may bring others.
        max_retries: New attempts after the program itself failed.
        timeout_s: Longest run of one attempt.
        queue_timeout_s: Longest wait for a cluster.
        user: Whose job it is, for fair shares; the user of this process by default.
        on_unreachable: When its cluster falls silent: "wait" for it, "fail", or the number of seconds after
            which the job is started elsewhere although the first run may go on.
        entrypoint_num_cpus: Passed on to Ray for the driver itself, as are the next four.
        entrypoint_num_gpus: See Ray's `submit_job`.
        entrypoint_memory: Bytes.
        entrypoint_resources: Custom resources by name.
        entrypoint_label_selector: Labels of the nodes that the driver may run on.
        idempotency_key: A second submit with the same key returns the first job instead of making another.
        group: A name that jobs of one batch share.
        parent: The job whose program submits this one; inside a job, that job.
        stop_children: Whoever stops this job stops what its program has submitted, too.
        only_cluster: It runs on this cluster or not at all; an unknown name is refused.
        only_tags: It runs only on clusters with all of these tags; refused if there is none.

    Raises:
        RuntimeError: No configuration was found.
        ValueError: Refused: a relative path, a bad environment, a taken id, larger than any cluster, …
    """
    arguments = locals()
    return submit_jobs([arguments])[0]


@ends_at_the_caller
def submit_jobs(jobs: Iterable[Mapping[str, Any]]) -> Jobs:
    """Accept many jobs in one transaction, all or none; each is a mapping of `submit_job` arguments."""
    if isinstance(jobs, (str, bytes, Mapping)) or not isinstance(jobs, Iterable):
        raise InvalidRequest(
            "jobs must be a list of mappings, each of submit_job's arguments, such as "
            f"[{{'entrypoint': 'echo 1'}}], not {shown(jobs)}; submit_job takes a single command"
        )
    given = list(jobs)
    if unlike := [each for each in given if not isinstance(each, Mapping)]:
        raise InvalidRequest(
            "each job must be a mapping of submit_job's arguments, such as {'entrypoint': 'echo 1'}, not "
            f"{shown(unlike[0])}"
        )
    with remembered() as ids:
        scheduler = working_scheduler()
        requests = [handed_over(_request(each), scheduler) for each in given]
        with telling_of_working_dir(requests):
            accepted = scheduler.service.submit(requests)
        ids += [job.submission_id for job in accepted]
    keep_scheduled(scheduler, at_once=True)
    for sentence in dict.fromkeys(sentence for job in accepted for sentence in job.warnings):
        warnings.warn(sentence, stacklevel=stacklevel_of_the_caller())
    return Jobs(map(Job, ids))


@ends_at_the_caller
def retry_job(submission_id: str) -> Job:
    """Run a job again that has failed or was stopped, as a new job with the same options; return its id.

    The new job's `metadata` says under `raymc.retry_of` which job it repeats.

    Raises:
        LookupError: No job has this id.
        ValueError: It has succeeded, or has not ended.
    """
    return _job(submission_id).retry()


@ends_at_the_caller
def get_job_status(submission_id: str, cluster_name: str | None = None) -> JobStatus:  # noqa: ARG001
    """Return PENDING, RUNNING, SUCCEEDED, FAILED, STOPPED, or UNKNOWN for an id that nobody knows.

    A `job_id` is an id too, here and below: it means the newest job that has it. The id alone is enough:
    `cluster_name` is accepted because older programs pass it.
    """
    return _job(submission_id).status


@ends_at_the_caller
def get_job_info(submission_id: str, cluster_name: str | None = None) -> JobInfo:  # noqa: ARG001
    """Return all that is known of a job: status, cluster, attempts, times, reason, environment, `logs`.

    It is a dict whose keys are attributes too, and prints the most important of it. Secrets in the
    environment are hidden. Raises `JobNotFound`.
    """
    return _job(submission_id).info()


@ends_at_the_caller
def stop_job(submission_id: str, cluster_name: str | None = None) -> bool:  # noqa: ARG001
    """Stop a job, waiting or running, and wait until it has ended; True when it was stopped.

    False when it had ended before, when nobody knows it, or when it could not be stopped in time.
    """
    return _job(submission_id).stop()


@ends_at_the_caller
def delete_job(submission_id: str) -> None:
    """Forget a job that has ended, with its log, here and on its clusters; its submission id is free again.

    Raises:
        LookupError: No job has this id.
        ValueError: It has not ended, or another job waits for it: stop that one first.
    """
    service = working_scheduler().service
    service.delete([one_job(service, submission_id).submission_id])


@ends_at_the_caller
def list_jobs(
    *,
    states: Sequence[str] | None = None,
    user: str | None = None,
    cluster: str | None = None,
    group: str | None = None,
    tag: str | None = None,
    limit: int | None = 100,
    job_id: str | None = None,
    parent: str | None = None,
    since: datetime | timedelta | str | float | None = None,
    text: str | None = None,
) -> list[dict[str, Any]]:
    """Return jobs, newest first, that match every given filter; `states` are those of docs/job-states.md.

    `since` and `text` are those of `jobs`, which returns the same as objects.
    """
    query = JobQuery(
        states=None if states is None else tuple(state_of(word) for word in words("states", states)),
        user=user,
        cluster=cluster,
        job_id=job_id,
        group=group,
        tag=tag,
        parent=parent,
        since=time_of(since),
        text=text,
    )
    found = all_jobs(working_scheduler().service, query, limit=limit)
    return [job.model_dump(mode="json") for job in found]


@ends_at_the_caller
def explain(submission_id: str) -> dict[str, Any]:
    """Return why a job is where it is: per cluster score parts or refusal, its place, what would help.

    `why` says it in one sentence.
    """
    service = working_scheduler().service
    job = one_job(service, submission_id)
    return service.explain(job.submission_id).model_dump(mode="json")


@ends_at_the_caller
def plan_job(entrypoint: str, **arguments: Any) -> dict[str, Any]:
    """Return what `submit_job` with these arguments would do now: a dry run. Raises what that would raise."""
    scheduler = working_scheduler()
    request = handed_over(_request({"entrypoint": entrypoint, **arguments}), scheduler)
    with telling_of_working_dir([request]):
        return scheduler.service.plan(request).model_dump(mode="json")


@ends_at_the_caller
def drain(cluster: str, reason: str = "") -> None:
    """Send no new jobs to a cluster; what runs there may end."""
    _set_drained(cluster, reason, drained=True)


@ends_at_the_caller
def undrain(cluster: str, reason: str = "") -> None:
    """Let a cluster have new jobs again."""
    _set_drained(cluster, reason, drained=False)


def _set_drained(cluster: str, reason: str, *, drained: bool) -> None:
    working_scheduler().service.set_drained(cluster, drained=drained, reason=reason)


def _request(arguments: Mapping[str, Any]) -> JobRequest:
    given = {name: value for name, value in arguments.items() if value is not None}
    known = inspect.signature(submit_job).parameters
    if unknown := sorted(map(str, given.keys() - known.keys())):
        raise InvalidRequest(f"submit_job has no argument {unknown[0]!r}; {did_you_mean(unknown[0], known)}")
    return JobRequest(**{"user": this_user(), "parent": this_job(), **given})


def _job(submission_id: str) -> Job:
    return Job(arguments.text("submission_id", submission_id, empty=True))


@ends_at_the_caller
def list_clusters() -> list[str]:
    """Return the names of the configured clusters."""
    return get_unified_scheduler().list_clusters()


# The log of a job.


@ends_at_the_caller
def get_job_logs(submission_id: str, tail: int | None = None) -> str:
    """Return the log of a job so far, or its last `tail` lines; empty where there is none.

    Raises `JobNotFound`.
    """
    return _job(submission_id).logs(tail)


@ends_at_the_caller
def tail_job_logs(submission_id: str) -> Iterator[str]:
    """Yield the log of a job in pieces as it grows; ends only when the job has ended.

    A broken connection is taken up again where it broke off; when the job is tried again elsewhere, a line
    says so and the new attempt's log follows. Raises `JobNotFound` at once for an unknown id.
    """
    service = working_scheduler().service
    job = one_job(service, submission_id)
    return service.tail(job.submission_id)


@ends_at_the_caller
async def tail_job_logs_async(submission_id: str) -> AsyncIterator[str]:
    """Like the blocking version, for asyncio: no thread waits."""
    service = (await asyncio.to_thread(working_scheduler)).service
    job = await asyncio.to_thread(one_job, service, submission_id)
    async for piece in service.tail_async(job.submission_id):
        yield piece
