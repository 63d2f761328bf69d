"""Who leads, that is, schedules: another process, this one for a moment, or nobody. Commands say which."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from ray_multicluster_scheduler.cli.session import find_jobs
from ray_multicluster_scheduler.cli.views.render import age
from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.errors import WaitTimeout
from ray_multicluster_scheduler.model.decision import Cause
from ray_multicluster_scheduler.model.states import LIVE, JobState

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.current import Handle
    from ray_multicluster_scheduler.service.views import DecisionView, JobView, LeaderView


#: How long `submit --no-wait` leads, at most, when nobody else does.
LEAD_S = 5.0
#: How much longer, at most, while a job is being sent: otherwise it would be reported as waiting.
SEND_S = 15.0
#: How often it checks meanwhile whether anything is left to send.
LOOK_S = 0.25
#: How long a command that shows jobs leads, at most, before it shows them.
CATCH_UP_S = 2.0
_NOBODY = "No scheduler is running"
_STARTS = "nothing starts waiting jobs now; `raymc wait ID`, `raymc top` or `raymc serve` does."
NOT_SENT = frozenset({JobState.QUEUED, JobState.PLACED})


def leader_name(lease: LeaderView) -> str:
    """Name a leader so that it can be found: `process 4711 on host`."""
    host, _, rest = lease.holder.partition(":")
    return f"process {rest.partition(':')[0]} on {host}" if rest else lease.holder


def send_what_fits(scheduler: Handle, submission_ids: Sequence[str], *, since: float) -> None:
    """Lead until these jobs are on their clusters or have no room there, a few seconds at most.

    `since` is when this process began to lead: what it knows from before may no longer be so.
    """
    enough = time.monotonic() + LEAD_S
    try:
        for jobs in scheduler.service.changes(submission_ids, timeout_s=LEAD_S + SEND_S, tick_s=LOOK_S):
            scheduler.check()
            unsent = [job for job in jobs.values() if job.state in NOT_SENT]
            # One speaks for all: the jobs of an array ask for the same.
            over = not unsent or time.monotonic() > enough or _has_no_room(scheduler, unsent[0], since)
            # Read again: what has no room may have lost it to one that was placed since the jobs were told.
            if over and not _are_being_sent(scheduler, submission_ids):
                return
    except WaitTimeout:
        return


def _are_being_sent(scheduler: Handle, submission_ids: Sequence[str]) -> bool:
    return any(job.state is JobState.PLACED for job in scheduler.service.get_many(submission_ids).values())


def _has_no_room(scheduler: Handle, job: JobView, since: float) -> bool:
    looked_at = [cluster.observed_at for cluster in scheduler.service.clusters()]
    if any(at is None or at < since for at in looked_at):
        return False
    decision = scheduler.service.explain(job.submission_id).decision
    return decision is None or not (decision.cluster is not None or _passes_soon(decision))


def _passes_soon(decision: DecisionView) -> bool:
    """Tell whether some cluster has room, and is only busy starting other jobs."""
    return any(refusal.cause is Cause.PACED for refusal in decision.refusals.values())


def bring_up_to_date(scheduler: Handle, jobs: Iterable[JobView]) -> bool:
    """Lead for a moment if nobody does and one of these jobs is on a cluster: it may have ended there.

    Returns whether that was so.
    """
    is_stale = any(job.state in LIVE for job in jobs) and scheduler.service.leader() is None
    if is_stale:
        scheduler.catch_up(timeout_s=CATCH_UP_S)
    return is_stale


def find_up_to_date(scheduler: Handle, words: Sequence[str]) -> list[JobView]:
    """Return the jobs that ids, names or groups mean, each once, as they are now."""
    found = find_jobs(scheduler, words, None)
    return find_jobs(scheduler, words, None) if bring_up_to_date(scheduler, found) else found


def stale_note(scheduler: Handle, jobs: Iterable[JobView]) -> Text | None:
    """Say that nobody schedules once this command has ended, and how old this is if that matters."""
    open_jobs = [job for job in jobs if not job.final]
    leader = scheduler.service.leader()
    leads_here = leader is not None and leader.holder == scheduler.holder
    if not open_jobs or (leader is not None and not leads_here):
        return None
    waiting = any(job.state in NOT_SENT for job in open_jobs)
    if leads_here and scheduler.catch_up(timeout_s=0):
        return Text(f"{_NOBODY}: {_STARTS}", style="yellow") if waiting else None
    looks = [cluster.observed_at for cluster in scheduler.service.clusters() if cluster.observed_at]
    seen = ""
    if looks:
        seen = f"; the clusters were last looked at {age(max(0.0, SystemClock().now() - max(looks)))} ago"
    elif any(job.state in LIVE for job in open_jobs):
        seen = "; the clusters have not answered"
    starts = f": {_STARTS}" if waiting else ". `raymc wait ID` brings jobs up to date."
    return Text(f"{_NOBODY}{seen}{starts}", style="yellow")
