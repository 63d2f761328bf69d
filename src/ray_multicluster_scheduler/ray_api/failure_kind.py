"""Maps the error types and messages of Ray's FAILED jobs to our kinds of failure."""

from __future__ import annotations

from collections.abc import Mapping

from ray_multicluster_scheduler.environment.setup_failure import fails_again
from ray_multicluster_scheduler.model.failure import FailureKind

_BY_ERROR_TYPE: Mapping[str, FailureKind] = {
    "RUNTIME_ENV_SETUP_FAILURE": FailureKind.ENVIRONMENT,
    "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE": FailureKind.UNSCHEDULABLE,
    "JOB_SUPERVISOR_ACTOR_START_TIMEOUT": FailureKind.UNSCHEDULABLE,
    "JOB_SUPERVISOR_ACTOR_START_FAILURE": FailureKind.SUPERVISOR,
    "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE": FailureKind.SUPERVISOR,
    "JOB_SUPERVISOR_ACTOR_DIED": FailureKind.SUPERVISOR,
    "JOB_ENTRYPOINT_COMMAND_START_ERROR": FailureKind.USER,
    "JOB_ENTRYPOINT_COMMAND_ERROR": FailureKind.USER,
}


def failure_kind(*, error_type: str | None, exit_code: int | None, message: str) -> FailureKind:
    """Return why a job is FAILED. In older Rays without error_type, an exit code means the program failed."""
    if error_type is not None:
        kind = _BY_ERROR_TYPE.get(error_type, FailureKind.SUPERVISOR)
    elif exit_code is not None:
        kind = FailureKind.USER
    elif message.startswith("runtime_env setup failed"):
        kind = FailureKind.ENVIRONMENT
    else:
        kind = FailureKind.SUPERVISOR
    permanent = kind is FailureKind.ENVIRONMENT and fails_again(message)
    return FailureKind.NO_ENVIRONMENT if permanent else kind
