"""How jobs ended, as messages for waiting callers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ray_multicluster_scheduler.errors import JobsFailed
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.text.visible import visible

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.api import Service
    from ray_multicluster_scheduler.service.views import JobView

#: How much of a failed job's log a waiting caller is shown, and of how many jobs: nobody reads more.
LAST_LOG_LINES = 10
MOST_LOGS = 20


def failed(jobs: Iterable[JobView]) -> list[JobView]:
    """Return those that have ended without success."""
    return [job for job in jobs if job.final and job.state is not JobState.SUCCEEDED]


def raise_if_failed(service: Service, jobs: Mapping[str, JobView]) -> None:
    """Raise `JobsFailed` when one of these jobs has ended without success; it says which and why."""
    bad = failed(jobs.values())
    if not bad:
        return
    told = [*(how_it_failed(service, job) for job in bad[:MOST_LOGS]), *map(_what_failed, bad[MOST_LOGS:])]
    if pending := sum(not job.final for job in jobs.values()):
        told.append(f"{pending} other job(s) go on")
    raise JobsFailed("\n".join(told), [job.submission_id for job in bad])


def how_it_failed(service: Service, job: JobView) -> str:
    """Tell which job did not succeed, where and why, with the end of its log."""
    lines = (service.detail(job.submission_id).logs or "").rstrip().splitlines()[-LAST_LOG_LINES:]
    return _what_failed(job) + _indented(map(visible, lines) if lines else ["(no log was kept)"])


def _what_failed(job: JobView) -> str:
    name = job.metadata.get("job_name") or job.own_name
    where = f"on {job.cluster!r}" if job.cluster else "before it got a cluster"
    named = f"{job.submission_id} ({name})" if name else job.submission_id
    return visible(f"job {named} {job.state.value} {where}: {job.message}")


def _indented(lines: Iterable[str]) -> str:
    return "".join(f"\n    | {line}" for line in lines)
