"""Who uses this process: which user, and which job's program it is."""

from __future__ import annotations

import getpass
import os

from ray_multicluster_scheduler.environment.env_vars import SUBMISSION_ID_VAR

USER_VARIABLE = "RAY_MULTICLUSTER_USER"


def this_user() -> str:
    """Return whose jobs this process submits: `RAY_MULTICLUSTER_USER`, else the user of the system."""
    return os.environ.get(USER_VARIABLE) or getpass.getuser()


def this_job() -> str | None:
    """Return the submission id of the job whose program this process is, if it is one's."""
    return os.environ.get(SUBMISSION_ID_VAR) or None
