"""The user of this process, and the job that it is the program of."""

from __future__ import annotations

import getpass
import os

from ray_multicluster_scheduler.environment.options import SUBMISSION_ID_VAR

USER_VARIABLE = "RAY_MULTICLUSTER_USER"


def this_user() -> str:
    """Return the user that this process submits jobs for: `RAY_MULTICLUSTER_USER` or the system user."""
    return os.environ.get(USER_VARIABLE) or getpass.getuser()


def this_job() -> str | None:
    """Return the submission id of the job that this process is the program of; None if it is not one."""
    return os.environ.get(SUBMISSION_ID_VAR) or None
