"""A job as Ray's clients read it: `JobDetails`, with all its keys in Ray's order."""

from __future__ import annotations

from typing import Any

from ray_multicluster_scheduler.environment.redact import REDACTED
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.views import JobView

#: Sentences of Ray that clients look for.
NOT_STARTED = "Job has not started yet."
FOR_RESOURCES = " It may be waiting for resources (CPUs, GPUs, memory, custom resources) to become available."
FOR_ENVIRONMENT = " It may be waiting for the runtime environment to be set up."
RUNNING = "Job is currently running."
_ENVIRONMENT_FAILED = "RUNTIME_ENV_SETUP_FAILURE"
_PROGRAM_FAILED = "JOB_ENTRYPOINT_COMMAND_ERROR"
#: How much of a failed job's log its message ends with.
LAST_LINES = 10
LAST_CHARS = 20_000


def job_details(
    job: JobView, *, why: str | None = None, log: str | None = None, browser: bool = False
) -> dict[str, Any]:
    """Return what Ray would, with `why` a queued job waits and the `log` of one that failed, where known.

    Where a cluster is reached, and on which of its nodes a driver runs, is none of a user's business.
    """
    return {
        "type": "SUBMISSION",
        "job_id": None,
        "submission_id": job.submission_id,
        "driver_info": None,
        "status": job.status,
        "entrypoint": job.entrypoint,
        "message": _message(job, why, log),
        "error_type": job.error_type if job.state is JobState.FAILED else None,
        "start_time": _milliseconds(job.accepted_at),
        "end_time": _milliseconds(job.ended_at),
        "metadata": dict(job.metadata),
        "runtime_env": _for_browser(job.runtime_env) if browser else job.runtime_env,
        "driver_agent_http_address": None,
        "driver_node_id": None,
        "driver_exit_code": None if job.state is JobState.STOPPED else job.exit_code,
    }


def _message(job: JobView, why: str | None, log: str | None) -> str:
    if job.state is JobState.SUCCEEDED:
        return "Job finished successfully."
    if job.state is JobState.STOPPED:
        return "Job was intentionally stopped."
    if job.state is JobState.FAILED:
        return _failure(job, log)
    if job.state is JobState.RUNNING:
        return RUNNING
    if job.state is JobState.UNREACHABLE:
        return f"{RUNNING} {job.message}"
    waits = _wants_resources(job)
    return (
        NOT_STARTED
        + (FOR_RESOURCES if waits else "")
        + (FOR_ENVIRONMENT if job.runtime_env else "")
        + f" {why or job.message}"
    )


def _wants_resources(job: JobView) -> bool:
    drivers = (job.entrypoint_num_cpus, job.entrypoint_num_gpus, job.entrypoint_memory)
    return job.state is JobState.QUEUED or any(drivers) or bool(job.entrypoint_resources)


def _failure(job: JobView, log: str | None) -> str:
    if job.error_type == _ENVIRONMENT_FAILED:
        return f"runtime_env setup failed: {job.message}"
    if job.error_type != _PROGRAM_FAILED or job.exit_code is None:
        return job.message
    said = f"Job entrypoint command failed with exit code {job.exit_code}"
    if log is None:
        return f"{said}. {job.message}"
    last = "".join(log.splitlines(keepends=True)[-LAST_LINES:])[-LAST_CHARS:]
    if not last:
        return f"{said}. No logs available."
    return f"{said}, last available logs (truncated to {LAST_CHARS:,} chars):\n{last}"


def _for_browser(runtime_env: dict[str, Any]) -> dict[str, Any]:
    """Hide all values of variables, as Ray does: another page may have sent the browser here."""
    env_vars = runtime_env.get("env_vars")
    if not isinstance(env_vars, dict):
        return runtime_env
    return {**runtime_env, "env_vars": dict.fromkeys(env_vars, REDACTED)}


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)
