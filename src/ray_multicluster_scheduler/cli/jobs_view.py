"""How a list of jobs looks."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli.render import NONE, age, ago, state_text
from ray_multicluster_scheduler.client.jobs import job_row
from ray_multicluster_scheduler.model.job import Job, Target


def jobs_table(jobs: Sequence[Job], now: float) -> Table:
    """Return a table as wide as the screen: only the command is ever cut, ids can always be copied."""
    several_users = len({job.spec.user for job in jobs}) > 1
    retried = any(job.attempt > 1 for job in jobs)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), expand=True)
    for heading in ("id", "state", "cluster", *(["user"] if several_users else []), "since", "ran"):
        table.add_column(heading, no_wrap=True)
    if retried:
        table.add_column("try", justify="right")
    table.add_column("command", ratio=1, no_wrap=True, overflow="ellipsis")
    for job in jobs:
        cells = [Text(job.submission_id), _state(job), Text(job.cluster) if job.cluster else NONE]
        cells += [Text(job.spec.user)] if several_users else []
        cells += [Text(ago(job.changed_at, now)), _ran(job, now)]
        cells += [Text(str(job.attempt))] if retried else []
        table.add_row(*cells, Text(" ".join(str(job_row(job)["entrypoint"]).split())))
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
