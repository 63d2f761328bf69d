"""Lists of jobs and of attempts for one caller: what was asked for is checked, and read from the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service import arguments
from ray_multicluster_scheduler.service.make_views import show_span
from ray_multicluster_scheduler.service.query import JobQuery, spans_limit
from ray_multicluster_scheduler.service.views import JobPage, JobView, TimelineView
from ray_multicluster_scheduler.store_ports import JobStore


def list_jobs(
    store: JobStore,
    query: JobQuery,
    *,
    only: str | None,
    show: Callable[[Sequence[Job]], tuple[JobView, ...]],
) -> JobPage:
    """Return a page of jobs, newest first; `only`: those of this user."""
    limit = query.page_limit()
    if only is not None and query.user not in {None, only}:
        return JobPage(jobs=(), next_cursor=None)
    found = store.list_jobs(
        states=query.states,
        user=only or arguments.text_or_none("user", query.user),
        cluster=arguments.text_or_none("cluster", query.cluster),
        name=arguments.text_or_none("job_id", query.job_id),
        group=arguments.text_or_none("group", query.group),
        parent=arguments.text_or_none("parent", query.parent),
        tag=arguments.text_or_none("tag", query.tag),
        since=arguments.amount("since", query.since),
        text=arguments.text_or_none("text", query.text),
        heads_only=query.heads_only,
        head=arguments.text_or_none("head", query.head),
        before=arguments.cursor(query.cursor),
        limit=limit + 1,
    )
    page, more = found[:limit], len(found) > limit
    return JobPage(
        jobs=show(page),
        next_cursor=str(page[-1].seq) if more and page else None,
        members=_members(store, page) if query.heads_only else {},
    )


def _members(store: JobStore, heads: Sequence[Job]) -> dict[str, dict[JobState, int]]:
    """Count what each of these stands for, itself included. All of it belongs to the user of the head."""
    counts = store.member_counts([job.submission_id for job in heads])
    for job in heads:
        if job.submission_id in counts:
            states = counts[job.submission_id]
            states[job.state] = states.get(job.state, 0) + 1
    return counts


def timeline(
    store: JobStore,
    *,
    since: float,
    until: float,
    cluster: str | None,
    only: str | None,
    limit: int,
) -> TimelineView:
    """Return the attempts of a span of time; `only`: those of this user's jobs."""
    since, until = arguments.moment("since", since), arguments.moment("until", until)
    if until < since:
        raise InvalidRequest(
            f"until ({until:.0f}) is before since ({since:.0f}); give the earlier time as since"
        )
    limit = spans_limit(limit)
    found = store.spans(
        since=since,
        until=until,
        cluster=arguments.text_or_none("cluster", cluster),
        user=only,
        limit=limit + 1,
    )
    return TimelineView(
        since=since,
        until=until,
        spans=tuple(map(show_span, found[-limit:])),
        truncated=len(found) > limit,
    )
