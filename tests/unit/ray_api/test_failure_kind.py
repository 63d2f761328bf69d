"""Why Ray calls a job FAILED, as our kinds of failure."""

from typing import Any

import pytest

from ray_multicluster_scheduler.model.execution import FailureKind
from ray_multicluster_scheduler.ray_api.parse import failure_kind


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"error_type": "RUNTIME_ENV_SETUP_FAILURE"}, FailureKind.ENVIRONMENT),
        ({"error_type": "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE"}, FailureKind.UNSCHEDULABLE),
        ({"error_type": "JOB_SUPERVISOR_ACTOR_DIED"}, FailureKind.SUPERVISOR),
        ({"error_type": "JOB_ENTRYPOINT_COMMAND_ERROR"}, FailureKind.USER),
        ({"error_type": "SOMETHING_NEW"}, FailureKind.SUPERVISOR),
        ({"exit_code": 1}, FailureKind.USER),
        ({"message": "runtime_env setup failed: no such package"}, FailureKind.ENVIRONMENT),
        (
            {"message": "runtime_env setup failed: ERROR: No matching distribution found for x"},
            FailureKind.NO_ENVIRONMENT,
        ),
        (
            {
                "error_type": "RUNTIME_ENV_SETUP_FAILURE",
                "message": "ValueError: Could not find Conda executable",
            },
            FailureKind.NO_ENVIRONMENT,
        ),
        ({}, FailureKind.SUPERVISOR),
    ],
)
def test_the_kind_follows_rays_own_words(told: dict[str, Any], kind: FailureKind) -> None:
    nothing: dict[str, Any] = {"error_type": None, "exit_code": None, "message": ""}
    assert failure_kind(**{**nothing, **told}) is kind
