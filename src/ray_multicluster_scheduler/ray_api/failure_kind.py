"""Why Ray calls a job FAILED: its error types and messages, as our kinds of failure."""

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
    """Tell why Ray calls a job FAILED. Older Rays give no error_type: then an exit code means the program."""
    if error_type is not None:
        kind = _BY_ERROR_TYPE.get(error_type, FailureKind.SUPERVISOR)
    elif exit_code is not None:
        kind = FailureKind.USER
    elif message.startswith("runtime_env setup failed"):
        kind = FailureKind.ENVIRONMENT
    else:
        kind = FailureKind.SUPERVISOR
    lasting = kind is FailureKind.ENVIRONMENT and fails_again(message)
    return FailureKind.NO_ENVIRONMENT if lasting else kind
