"""Where pages are that others lead to. `job_list_address.py` has the addresses of lists of jobs."""

from __future__ import annotations

from urllib.parse import quote

#: Pages of the server itself: they are there before anything of the dashboard is sent.
LOGIN, LOGOUT = "/login", "/logout"


def job_address(submission_id: str) -> str:
    """Return where a job is shown."""
    return f"/jobs/{quote(submission_id, safe='')}"


def cluster_address(name: str) -> str:
    """Return where a cluster is shown."""
    return f"/clusters?cluster={quote(name, safe='')}"
