"""Where a job and a cluster are shown. `job_list_address.py` has the addresses of lists of jobs."""

from __future__ import annotations

from urllib.parse import quote


def job_address(submission_id: str) -> str:
    """Return where a job is shown."""
    return f"/jobs/{quote(submission_id, safe='')}"


def cluster_address(name: str) -> str:
    """Return where a cluster is shown."""
    return f"/clusters#{quote(name, safe='')}"
