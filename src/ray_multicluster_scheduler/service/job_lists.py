"""Lists of jobs and of attempts for one caller: what was asked for is checked, and read from the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.decision import REASONS
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service import arguments
from ray_multicluster_scheduler.service.make_views import show_span
from ray_multicluster_scheduler.service.query import MOST_PAGE_JOBS, JobQuery, spans_limit
from ray_multicluster_scheduler.service.views import JobPage, JobView, TimelineView
from ray_multicluster_scheduler.store_ports import JobStore

#: How many pages of the queue are looked through for jobs that wait for one reason; the cursor goes on.
MOST_LOOKS = 5

_Show = Callable[[Sequence[Job]], tuple[JobView, ...]]
_Read = Callable[[int | None, Sequence[JobState] | None, int], tuple[Job, ...]]


def list_jobs(
    store: JobStore,
    query: JobQuery,
    *,
    only: str | None,
    show: _Show,
) -> JobPage:
    """Return a page of jobs, newest first; `only`: those of this user."""
    limit = query.page_limit()
    if only is not None and query.user not in {None, only}:
        return JobPage(jobs=(), next_cursor=None)

    def read(before: int | None, states: Sequence[JobState] | None, most: int) -> tuple[Job, ...]:
        return store.list_jobs(
            states=states,
            user=only or arguments.text_or_none("user", query.user),
            cluster=arguments.text_or_none("cluster", query.cluster),
            name=arguments.text_or_none("job_id", query.job_id),
            group=arguments.text_or_none("group", query.group),
            parent=arguments.text_or_none("parent", query.parent),
            tag=arguments.text_or_none("tag", query.tag),
            since=arguments.amount("since", query.since),
            changed_since=arguments.amount("changed_since", query.changed_since),
            changed_until=arguments.amount("changed_until", query.changed_until),
            text=arguments.text_or_none("text", query.text),
            heads_only=query.heads_only,
            head=arguments.text_or_none("head", query.head),
            before=before,
            limit=most,
        )

    if query.wait_reason is not None:
        if query.heads_only:
            raise InvalidRequest("wait_reason finds single jobs; leave heads_only out")
        return _waiting(read, query, limit, show)
    found = read(arguments.cursor(query.cursor), query.states, limit + 1)
    page, more = found[:limit], len(found) > limit
    return JobPage(
        jobs=show(page),
        next_cursor=str(page[-1].seq) if more and page else None,
        members=_members(store, page) if query.heads_only else {},
    )


def _waiting(read: _Read, query: JobQuery, limit: int, show: _Show) -> JobPage:
    """Look through the queue for jobs that wait for one reason: the store knows none."""
    if query.wait_reason not in REASONS:
        given = arguments.shown(query.wait_reason)
        raise InvalidRequest(f"wait_reason: there is no {given}; the reasons are {', '.join(REASONS)}")
    states = [state for state in (JobState.QUEUED,) if query.states is None or state in query.states]
    before, found = arguments.cursor(query.cursor), list[JobView]()
    for _ in range(MOST_LOOKS):
        jobs = read(before, states, MOST_PAGE_JOBS)
        for job, view in zip(jobs, show(jobs), strict=True):
            if view.wait_reason == query.wait_reason:
                if len(found) >= limit:
                    return JobPage(jobs=tuple(found), next_cursor=None if before is None else str(before))
                found.append(view)
            before = job.seq
        if len(jobs) < MOST_PAGE_JOBS:
            return JobPage(jobs=tuple(found), next_cursor=None)
    return JobPage(jobs=tuple(found), next_cursor=str(before))


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
