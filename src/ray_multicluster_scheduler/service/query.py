"""Which jobs a list is about: filters, and where it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service import arguments

if TYPE_CHECKING:
    from ray_multicluster_scheduler.model.job import JobEvent
    from ray_multicluster_scheduler.service.api import Service
    from ray_multicluster_scheduler.service.views import JobView

#: Jobs per page: the default and the maximum.
PAGE_JOBS = 100
MOST_PAGE_JOBS = 1000
#: Events per answer: the default and the maximum.
EVENTS = 1000
MOST_EVENTS = 10_000
#: Attempts of a timeline: the default and the maximum.
SPANS = 2000
MOST_SPANS = 10_000
#: How many of the last attempts are shown with a job: each repeats the environment that was sent.
MOST_ATTEMPTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """Jobs, newest first, that match every given filter.

    With `heads_only`, filters are about the head itself: `states=(FAILED,)` is not about the others of its
    array. `JobPage.members` counts these in all states.
    """

    states: tuple[JobState, ...] | None = None
    user: str | None = None
    cluster: str | None = None
    job_id: str | None = None
    group: str | None = None
    #: Submitted by the program of this job.
    parent: str | None = None
    tag: str | None = None
    #: Accepted at or after this time.
    since: float | None = None
    #: In the present state since this time or later, and since before this time: when FAILED jobs failed.
    changed_since: float | None = None
    changed_until: float | None = None
    #: Waits in the queue for this reason, one of `core/placement/wait_reasons.REASONS`.
    wait_reason: str | None = None
    #: A part of the id, the name or the command.
    text: str | None = None
    #: One job for each array, group or chain of dependencies: the first of it.
    heads_only: bool = False
    #: This job and those that are listed under it.
    head: str | None = None
    limit: int = PAGE_JOBS
    #: `next_cursor` of the page before.
    cursor: str | None = None

    def page_limit(self) -> int:
        """Return `limit`, checked."""
        limit = arguments.whole("limit", self.limit, least=0)
        if limit > MOST_PAGE_JOBS:
            raise InvalidRequest(
                f"limit: a page has {MOST_PAGE_JOBS} jobs at most; next_cursor gets the others"
            )
        return limit


def events_limit(limit: int) -> int:
    """Return how many events are asked for, checked."""
    if arguments.whole("limit", limit, least=0) > MOST_EVENTS:
        raise InvalidRequest(f"limit: an answer has {MOST_EVENTS} events at most; `after` gets the others")
    return limit


def spans_limit(limit: int) -> int:
    """Return how many attempts of a timeline are asked for, checked."""
    if arguments.whole("limit", limit, least=1) > MOST_SPANS:
        raise InvalidRequest(f"limit: a timeline has {MOST_SPANS} attempts at most; ask for a shorter time")
    return limit


def all_events(service: Service, submission_id: str) -> Iterator[JobEvent]:
    """Yield every move of a job, in order, one answer after the other."""
    after = 0
    while page := service.events(submission_id, after=after, limit=EVENTS):
        yield from page
        after = page[-1].id


def one_job(service: Service, word: str) -> JobView:
    """Return the job with this submission id, else the newest with this `job_id`; or `JobNotFound`."""
    (job,) = service.find_each([arguments.text("submission_id", word, empty=True)])
    return job


def all_jobs(service: Service, query: JobQuery, *, limit: int | None) -> Iterator[JobView]:
    """Yield the jobs of a list page by page: all of them, or as many as `limit`."""
    left = None if limit is None else arguments.whole("limit", limit, least=0)
    while left is None or left > 0:
        size = MOST_PAGE_JOBS if left is None else min(left, MOST_PAGE_JOBS)
        page = service.list_jobs(replace(query, limit=size))
        yield from page.jobs
        if page.next_cursor is None:
            return
        left = None if left is None else left - len(page.jobs)
        query = replace(query, cursor=page.next_cursor)
