"""The rows of a list of jobs, as the browser gets them. Open pages share them: nobody changes one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.service.views import JobPage, JobView

#: What can be run again.
RETRIED = frozenset({JobState.FAILED, JobState.STOPPED})
#: A cell shows one line of it, and its tooltip this much.
MOST_MESSAGE = 1000

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some rows of a list, and where it goes on."""

    rows: tuple[Row, ...]
    next_cursor: str | None = None


def rows_of(page: JobPage) -> Rows:
    """Return a row for each job of a page, or for all that are listed under it."""
    rows = tuple(row_of(job, page.members.get(job.submission_id)) for job in page.jobs)
    return Rows(rows=rows, next_cursor=page.next_cursor)


def row_of(job: JobView, members: Mapping[JobState, int] | None = None) -> Row:
    """Return what a row shows. `stop` and `retry` say for how many of its jobs that would do something."""
    states = members or {job.state: 1}
    name = job.own_name or job.submission_id
    return {
        "id": job.submission_id,
        "name": (job.group or name) if members else name,
        "state": job.state.value,
        "stopping": job.stopping and not job.final,
        "cluster": job.cluster or "",
        "user": job.user,
        "accepted": job.accepted_at,
        # A job that never started has waited until it ended.
        "waited": job.started_at or job.ended_at,
        "started": job.started_at,
        "ended": job.ended_at,
        "attempt": job.attempt,
        "message": job.message[:MOST_MESSAGE],
        "members": members and {state.value: members[state] for state in JobState if members.get(state)},
        "stop": sum(count for state, count in states.items() if state not in FINAL),
        "retry": sum(count for state, count in states.items() if state in RETRIED),
    }


def same_jobs(former: Iterable[Row], now: Mapping[str, JobView]) -> tuple[Row, ...]:
    """Return the rows of the same jobs as they are now; a job that was deleted is left out."""
    return tuple(row_of(now[row["id"]]) for row in former if row["id"] in now)
