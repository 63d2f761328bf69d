"""The rows of a list of jobs, as the browser gets them. Open pages share them: nobody changes one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.service.views import JobPage, JobView

#: What can be run again.
RETRIED = frozenset({JobState.FAILED, JobState.STOPPED})
#: What these say of themselves is that they are so.
_UNDER_WAY = frozenset({JobState.PLACED, JobState.SUBMITTED, JobState.RUNNING})
#: A cell shows two lines of it, and its tooltip this much.
MOST_MESSAGE = 1000

Row = Mapping[str, Any]


def title_of(job: JobView) -> str:
    """Return what people call a job: its name, and its index where others of an array have the same name."""
    name, index = job.own_name, index_of(job)
    if name is None:
        return job.submission_id
    return name if index is None or name.endswith(index) else f"{name} [{index}]"


def index_of(job: JobView) -> str | None:
    """Return the index of a job in its array; None: it is in none. `service/arrays.py` makes the ids."""
    head, _, index = job.submission_id.rpartition("-")
    return index if job.group is not None and head == job.group and index.isdecimal() else None


def exit_code_of(job: JobView) -> int | None:
    """Return the exit code that says all about the failure of a job; None: its message does."""
    return job.exit_code if job.state is JobState.FAILED else None


def _message(job: JobView) -> str:
    """Return what a row says of a job: nothing where its state says all."""
    if job.state is JobState.QUEUED:
        return job.waits_for or ("" if not job.attempt else job.message)
    if job.state is JobState.SUCCEEDED or (job.state in _UNDER_WAY and not job.setting_up):
        return ""
    return job.message


def _title_of_all(job: JobView) -> str:
    """Return what people call the jobs that are listed under this one."""
    name, index = job.own_name, index_of(job)
    if index is not None and name is not None and not name.endswith(index):
        return name  # the group of an array has an id for a name
    return job.group or name or job.submission_id


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
    return {
        "id": job.submission_id,
        "name": _title_of_all(job) if members else title_of(job),
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
        # The browser says these in the visitor's language.
        "reason": job.wait_reason,
        "exit": exit_code_of(job),
        "message": _message(job)[:MOST_MESSAGE],
        "about": (job.waits_for or job.message)[:MOST_MESSAGE],
        "members": members and {state.value: members[state] for state in JobState if members.get(state)},
        "stop": sum(count for state, count in states.items() if state not in FINAL),
        "retry": sum(count for state, count in states.items() if state in RETRIED),
    }


def same_jobs(former: Iterable[Row], now: Mapping[str, JobView]) -> tuple[Row, ...]:
    """Return the rows of the same jobs as they are now; a job that was deleted is left out."""
    return tuple(row_of(now[row["id"]]) for row in former if row["id"] in now)
