"""How one job looks: its facts, its attempts and its events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import yaml
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli import lazy_imports
from ray_multicluster_scheduler.cli.views.render import NONE, state_text
from ray_multicluster_scheduler.cli.views.times import Times
from ray_multicluster_scheduler.model.job_options import JOB_OPTIONS
from ray_multicluster_scheduler.model.resources import show
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.repeat import RETRY_OF

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.views import AttemptView, EventView, JobDetail


#: Options that have a row of their own.
_IN_ROWS = {"priority", "group", "tags", "depends_on"}


def show_job(console: Console, job: JobDetail) -> None:
    """Print all that is known of a job: facts, attempts, and of a failed one the end of its log."""
    times = Times.of(console)
    console.print(_facts(job, times))
    if job.attempts:
        console.print(_attempts(job.attempts, times))
    if job.state is JobState.FAILED and job.logs:
        lines = job.logs.rstrip().splitlines()
        console.print(Text("The end of its log:", style="bold"))
        console.print(Text("\n".join(lines[-lazy_imports.LAST_LOG_LINES :]), overflow="fold"))


def _facts(job: JobDetail, times: Times) -> Table:
    env = json.dumps(job.runtime_env, ensure_ascii=False)
    if not times.for_programs:
        env = yaml.safe_dump(job.runtime_env, sort_keys=False, allow_unicode=True, width=1000).rstrip()
    rows: list[tuple[str, str | Text | None]] = [
        ("id", Text(job.submission_id, style="bold")),
        ("name", job.own_name),
        ("state", Text.assemble(state_text(job.state), f" {times.since(job.changed_at)}")),
        ("why", job.message),
        ("waits", job.waits_for),
        ("cluster", job.cluster),
        ("command", Text(job.entrypoint, style="cyan")),
        ("environment", env if job.runtime_env else None),
        ("claims", show(job.resource_requirements)),
        ("user", job.user),
        ("priority", str(job.priority)),
        ("group", job.group),
        ("tags", ", ".join(job.tags)),
        ("after", ", ".join(job.depends_on)),
        *_other_options(job),
        ("repeats", job.metadata.get(RETRY_OF)),
        ("metadata", _pairs(job.metadata)),
        ("accepted", times.when(job.accepted_at)),
        ("started", times.when(job.started_at) if job.started_at else None),
        ("ended", _ended(job, times)),
        ("ran", times.ran(job.started_at, job.ended_at)),
        ("exit code", None if job.exit_code is None else str(job.exit_code)),
        ("error", job.error_type),
    ]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for heading, value in rows:
        if value:
            table.add_row(heading, value if isinstance(value, Text) else Text(value))
    return table


def _ended(job: JobDetail, times: Times) -> str | None:
    if job.ended_at is None:
        return None
    noticed = " (seen then: its cluster did not say when it ended)" if job.end_unreported else ""
    return times.when(job.ended_at) + noticed


def _other_options(job: JobDetail) -> list[tuple[str, str | Text | None]]:
    """Return what else was asked for, where that is not the default."""
    asked = ((option, getattr(job, option.name)) for option in JOB_OPTIONS if option.name not in _IN_ROWS)
    return [_fact(option.name, value) for option, value in asked if value != option.default]


def _fact(name: str, value: object) -> tuple[str, str]:
    words = ", ".join(value) if isinstance(value, tuple) else "yes" if value is True else str(value)
    heading = name.removesuffix("_s").replace("_", " ")
    return heading, f"{words} s" if name.endswith("_s") else words


def _pairs(metadata: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in metadata.items() if key != RETRY_OF)


def _attempts(attempts: Sequence[AttemptView], times: Times) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("attempt", "cluster", "placed", "ran", "outcome"):
        table.add_column(heading, no_wrap=True)
    table.add_column("why", overflow="fold")
    for attempt in attempts:
        ran = Text(times.ran(attempt.started_at, attempt.ended_at))
        outcome = Text(attempt.outcome or "open")
        cells = (
            Text(str(attempt.number)),
            Text(attempt.cluster),
            Text(times.when(attempt.placed_at)),
        )
        table.add_row(*cells, ran, outcome, Text(attempt.reason))
    return table


def events_table(moves: Sequence[EventView], times: Times) -> Table:
    """Return one row per move of a job, the oldest first."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("when", "from", "to", "try"):
        table.add_column(heading, no_wrap=True)
    table.add_column("why", overflow="fold")
    for move in moves:
        table.add_row(
            Text(times.when(move.at)),
            NONE if move.old is None else Text(move.old.value),
            Text("(stays)", style="dim") if move.old is move.new else Text(move.new.value),
            Text(str(move.attempt)) if move.attempt else NONE,
            Text(move.reason),
        )
    return table
