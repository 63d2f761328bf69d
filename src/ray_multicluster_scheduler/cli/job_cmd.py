"""`raymc status`, `info`, `events`: what is known of one job. They read the store and start nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import yaml
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli import late
from ray_multicluster_scheduler.cli.leading import bring_up_to_date, stale_note
from ray_multicluster_scheduler.cli.options import ConfigOption, IdArgument, JsonOption, find_job, opened
from ray_multicluster_scheduler.cli.render import NONE, age, ago, state_text, stdout_console, write_json
from ray_multicluster_scheduler.engine.clock import SystemClock
from ray_multicluster_scheduler.model.job import Event, Job
from ray_multicluster_scheduler.model.resources import show
from ray_multicluster_scheduler.model.states import RAY_STATUS, JobState
from ray_multicluster_scheduler.policy.redact import redact_text, secrets_of

if TYPE_CHECKING:
    from ray_multicluster_scheduler.runtime import Scheduler


def status(submission_id: IdArgument, *, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Say in one line where a job is.

    The exit code is 0 whatever its state: `raymc wait` judges.
    """
    with opened(config) as scheduler:
        job = _up_to_date(scheduler, submission_id)
        row = late.job_row(job)
        if as_json:
            write_json({**row, "status": RAY_STATUS[job.state]})
            return
        console, where = stdout_console(), f" on {job.cluster}" if job.cluster else ""
        since = age(max(0.0, SystemClock().now() - job.changed_at))
        console.print(
            Text.assemble(state_text(job.state), f"{where} for {since}: {row['reason']}"), soft_wrap=True
        )
        _footer(console, scheduler, job)


def info(submission_id: IdArgument, *, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show all that is known of a job; secrets are hidden."""
    with opened(config) as scheduler:
        job = _up_to_date(scheduler, submission_id)
        known = scheduler.jobs.info(submission_id)
        log = redact_text(
            known.pop("logs") or "", secrets_of(job.spec.runtime_env)
        )  # `raymc logs` has it all
        if as_json:
            write_json(known)
            return
        console, now = stdout_console(), SystemClock().now()
        console.print(_facts(job, known, now))
        if known["attempts"]:
            console.print(_attempts(known["attempts"], now))
        if job.state is JobState.FAILED and log:
            console.print(Text("The end of its log:", style="bold"))
            console.print(Text("\n".join(log.rstrip().splitlines()[-late.LAST_LOG_LINES :]), overflow="fold"))
        _footer(console, scheduler, job)


def events(submission_id: IdArgument, *, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List every move of a job: from where to where, when and why."""
    with opened(config) as scheduler:
        job = _up_to_date(scheduler, submission_id)
        secrets = secrets_of(job.spec.runtime_env)
        moves = [
            {**_event_row(event), "reason": redact_text(event.reason, secrets)}
            for event in scheduler.store.events(submission_id)
        ]
        if as_json:
            write_json(moves)
            return
        console = stdout_console()
        console.print(_events(moves, SystemClock().now()))
        _footer(console, scheduler, job)


def _up_to_date(scheduler: Scheduler, submission_id: str) -> Job:
    bring_up_to_date(scheduler, [find_job(scheduler.store, submission_id)])
    return scheduler.store.get(submission_id)


def _footer(console: Console, scheduler: Scheduler, job: Job) -> None:
    if (note := stale_note(scheduler, [job])) is not None:
        console.print(note)


def _facts(job: Job, known: Mapping[str, Any], now: float) -> Table:
    env = yaml.safe_dump(known["runtime_env"], sort_keys=False, allow_unicode=True, width=1000).rstrip()
    rows: list[tuple[str, str | Text | None]] = [
        ("id", Text(job.submission_id, style="bold")),
        ("name", known["job_id"]),
        ("state", Text.assemble(state_text(job.state), f" for {age(max(0.0, now - job.changed_at))}")),
        ("why", known["message"]),
        ("cluster", known["cluster"]),
        ("command", Text(known["entrypoint"], style="cyan")),
        ("environment", env if known["runtime_env"] else None),
        ("claims", show(job.spec.claim)),
        ("user", known["user"]),
        ("priority", str(job.spec.priority)),
        ("group", job.spec.group),
        ("tags", ", ".join(known["tags"])),
        ("after", ", ".join(known["depends_on"])),
        ("metadata", ", ".join(f"{key}={value}" for key, value in known["metadata"].items())),
        ("accepted", ago(job.accepted_at, now)),
        ("started", ago(job.started_at, now) if job.started_at else None),
        ("ended", ago(job.ended_at, now) if job.ended_at else None),
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


def _attempts(attempts: Sequence[Mapping[str, Any]], now: float) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("attempt", "cluster", "placed", "ran", "outcome"):
        table.add_column(heading, no_wrap=True)
    table.add_column("why", overflow="fold")
    for attempt in attempts:
        started, ended = attempt["started_at"], attempt["ended_at"]
        ran = NONE if started is None else Text(age(max(0.0, (ended or now) - started)))
        outcome = Text(attempt["outcome"] or "open")
        cells = (Text(str(attempt["number"])), Text(attempt["cluster"]), Text(ago(attempt["placed_at"], now)))
        table.add_row(*cells, ran, outcome, Text(attempt["reason"]))
    return table


def _event_row(event: Event) -> dict[str, Any]:
    return {
        **asdict(event),
        "old": None if event.old is None else event.old.value,
        "new": event.new.value,
    }


def _events(moves: Sequence[Mapping[str, Any]], now: float) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("when", "from", "to", "try"):
        table.add_column(heading, no_wrap=True)
    table.add_column("why", overflow="fold")
    for move in moves:
        old, new = move["old"], move["new"]
        table.add_row(
            Text(ago(move["at"], now)),
            NONE if old is None else Text(old),
            Text("(stays)", style="dim") if old == new else Text(new),
            Text(str(move["attempt"])) if move["attempt"] else NONE,
            Text(move["reason"]),
        )
    return table
