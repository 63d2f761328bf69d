"""What `raymc submit --no-wait` says: what was sent where, what waits, and for whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from ray_multicluster_scheduler.cli.console import say, write_json, write_line
from ray_multicluster_scheduler.cli.leader_status import NOT_SENT, leader_name
from ray_multicluster_scheduler.cli.views.reasons import why_it_waits
from ray_multicluster_scheduler.model.states import JobState

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.current import Handle
    from ray_multicluster_scheduler.service.views import JobView, LeaderView


def tell_accepted(
    scheduler: Handle, accepted: Sequence[JobView], leader: LeaderView | None, *, as_json: bool
) -> None:
    """Write the id (of an array, the group's) to stdout and the story to stderr; or all of it as JSON."""
    found = scheduler.service.get_many([job.submission_id for job in accepted])
    jobs = [found[job.submission_id] for job in accepted]
    group = jobs[0].group
    if as_json:
        name = None if leader is None else leader.holder
        write_json({"group": group, "leader": name, "jobs": [job.model_dump(mode="json") for job in jobs]})
        return
    write_line(group or jobs[0].submission_id)
    if leader is not None:
        count = "It is" if len(jobs) == 1 else f"{len(jobs)} jobs are"
        say(f"{count} accepted; {leader_name(leader)} schedules.")
        return
    for line in _what_was_done(scheduler, jobs, group):
        say(line)


def _what_was_done(scheduler: Handle, jobs: Sequence[JobView], group: str | None) -> list[Text]:
    sent = [job for job in jobs if job.state not in NOT_SENT]
    waiting = [job for job in jobs if job.state in NOT_SENT]
    one = len(jobs) == 1
    lines = []
    if sent:
        places = Counter(job.cluster or job.state.value for job in sent)
        where = str(sent[0].cluster) if one else ", ".join(f"{n} to {place}" for place, n in places.items())
        lines.append(Text(f"Sent to {where}." if one else f"{len(sent)} of {len(jobs)} were sent: {where}."))
    if waiting:
        queued = [job for job in waiting if job.state is JobState.QUEUED]
        if under_way := len(waiting) - len(queued):
            lines.append(Text("It is being sent." if one else f"{under_way} are being sent.", style="yellow"))
        if queued:
            why = ("It waits: " if one else f"{len(queued)} wait: ") + _why(scheduler, queued[0])
            lines.append(Text(why, style="yellow"))
        target = f"--group {group}" if group else jobs[0].submission_id
        it = "it" if one else "them"
        lines.append(
            Text(f"No scheduler is running: `raymc wait {target}`, or any raymc that waits, sends {it}.")
        )
    return lines


def _why(scheduler: Handle, first: JobView) -> str:
    """Say why the first waiting job waits; there may be room for it, but nobody sends it any more."""
    explained = scheduler.service.explain(first.submission_id)
    if explained.decision is not None and explained.decision.cluster is not None:
        return f"{first.submission_id} is the next, for {explained.decision.cluster}"
    return why_it_waits(explained)
