"""Who uses this process."""

from __future__ import annotations

import getpass
import os

USER_VARIABLE = "RAY_MULTICLUSTER_USER"


def this_user() -> str:
    """Return whose jobs this process submits: `RAY_MULTICLUSTER_USER`, else the user of the system."""
    return os.environ.get(USER_VARIABLE) or getpass.getuser()
