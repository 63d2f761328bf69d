"""What lists are asked for in a URL, checked as the service checks it; what is None is not asked for."""

from __future__ import annotations

from typing import Any

from ray_multicluster_scheduler.service import arguments
from ray_multicluster_scheduler.service.query import JobQuery, spans_limit


def jobs_query(query: JobQuery) -> dict[str, Any]:
    """Return the filters of a list of jobs."""
    return {
        "state": None if query.states is None else [state.value for state in query.states],
        "user": arguments.text_or_none("user", query.user),
        "cluster": arguments.text_or_none("cluster", query.cluster),
        "job_id": arguments.text_or_none("job_id", query.job_id),
        "group": arguments.text_or_none("group", query.group),
        "parent": arguments.text_or_none("parent", query.parent),
        "tag": arguments.text_or_none("tag", query.tag),
        "since": query.since,
        "changed_since": query.changed_since,
        "changed_until": query.changed_until,
        "wait_reason": arguments.text_or_none("wait_reason", query.wait_reason),
        "text": arguments.text_or_none("text", query.text),
        "heads_only": query.heads_only or None,
        "head": arguments.text_or_none("head", query.head),
        "limit": query.page_limit(),
        "cursor": query.cursor,
    }


def timeline_query(since: float, until: float | None, cluster: str | None, limit: int) -> dict[str, Any]:
    """Return the span of time and the filters of a timeline."""
    return {
        "since": arguments.moment("since", since),
        "until": None if until is None else arguments.moment("until", until),
        "limit": spans_limit(limit),
        "cluster": arguments.text_or_none("cluster", cluster),
    }
