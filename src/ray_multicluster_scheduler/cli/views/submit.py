"""What `raymc submit --no-wait` says: what was sent where, what waits, and for whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from ray_multicluster_scheduler.cli.console import say, write_json, write_line
from ray_multicluster_scheduler.cli.leader_status import NOT_SENT, leader_name
from ray_multicluster_scheduler.cli.views.reasons import upper_first, why_it_waits
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
    ended = [job for job in jobs if job.final and not job.attempt]
    sent = [job for job in jobs if job.state not in NOT_SENT and job not in ended]
    waiting = [job for job in jobs if job.state in NOT_SENT]
    one = len(jobs) == 1
    lines = []
    if ended:
        count = "It was" if one else f"{len(ended)} of {len(jobs)} were"
        lines.append(Text(f"{count} never sent: {ended[0].message}", style="red"))
    if sent:
        places = Counter(job.cluster or job.state.value for job in sent)
        where = ", ".join(f"{n} to {place}" for place, n in places.items())
        lines.append(Text(_sent(sent[0]) if one else f"{len(sent)} of {len(jobs)} were sent: {where}."))
    if waiting:
        queued = [job for job in waiting if job.state is JobState.QUEUED]
        if under_way := len(waiting) - len(queued):
            lines.append(Text("It is being sent." if one else f"{under_way} are being sent.", style="yellow"))
        will_start = True
        if queued:
            why, will_start = _why(scheduler, queued, one=one)
            lines.append(Text(why, style="yellow"))
        target = f"--group {group}" if group else jobs[0].submission_id
        it = "it" if one else "them"
        if will_start:
            start = f"`raymc wait {target}`, `raymc top` or `raymc serve` starts {it}"
            lines.append(Text(f"No scheduler is running: {start}."))
    return lines


def _sent(job: JobView) -> str:
    ended = f" It has ended there: {job.state.value}: {job.message}." if job.final else ""
    return f"Sent to {job.cluster}.{ended}"


def _why(scheduler: Handle, queued: Sequence[JobView], *, one: bool) -> tuple[str, bool]:
    """Say why the first waiting job waits, and whether it will start once somebody schedules."""
    first = queued[0].submission_id
    explained = scheduler.service.explain(first)
    they = "It waits" if one else f"{len(queued)} wait"
    if explained.decision is None:
        if explained.waits_for is None:
            return f"{upper_first(explained.why)}.", False
        return f"{they} for {explained.waits_for}.", True
    if explained.decision.cluster is not None:
        return f"{they}: {first} is the next, for {explained.decision.cluster}", True
    return f"{they}: {why_it_waits(explained)}", True
