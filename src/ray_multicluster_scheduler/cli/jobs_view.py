"""How a list of jobs looks."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli import late
from ray_multicluster_scheduler.cli.render import NONE, age, ago, state_text
from ray_multicluster_scheduler.model.job import Job, Target

#: Less room for the command than this, and it goes below the id.
_SHORTEST_COMMAND = 16
#: What the columns between id and command take, about.
_MIDDLE = 42


def jobs_table(jobs: Sequence[Job], now: float, width: int) -> Table:
    """Return a table that fits `width`: only the command is ever cut, ids can always be copied."""
    longest = max((len(job.submission_id) for job in jobs), default=0)
    below = width - longest - _MIDDLE < _SHORTEST_COMMAND
    several_users = len({job.spec.user for job in jobs}) > 1
    retried = any(job.attempt > 1 for job in jobs)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), expand=not below)
    for heading in ("id", "state", "cluster", *(["user"] if several_users else []), "changed", "ran"):
        table.add_column(heading, no_wrap=True)
    if retried:
        table.add_column("try", justify="right")
    if not below:
        table.add_column("command", ratio=1, no_wrap=True, overflow="ellipsis")
    for job in jobs:
        command = Text(" ".join(str(late.job_row(job)["entrypoint"]).split()))
        name = Text(job.submission_id)
        if below:
            command.truncate(longest, overflow="ellipsis")
            name = Text("\n").join([name, Text(command.plain, style="dim")])
        cells = [name, _state(job), Text(job.cluster) if job.cluster else NONE]
        cells += [Text(job.spec.user)] if several_users else []
        cells += [Text(ago(job.changed_at, now)), _ran(job, now)]
        cells += [Text(str(job.attempt))] if retried else []
        table.add_row(*cells, *([] if below else [command]))
    return table


def _state(job: Job) -> Text:
    text = state_text(job.state)
    if job.target is Target.STOPPED and not job.final:
        text.append(" (stopping)", style="dim")
    return text


def _ran(job: Job, now: float) -> Text:
    """Return how long its program runs or ran."""
    if job.started_at is None:
        return NONE
    return Text(age(max(0.0, (job.ended_at or now) - job.started_at)))
