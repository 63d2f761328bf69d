"""`raymc status`, `info`, `events`: what is known of one job. They read the store and start nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import yaml
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli import late
from ray_multicluster_scheduler.cli.leading import find_up_to_date, stale_note
from ray_multicluster_scheduler.cli.options import ConfigOption, IdArgument, JsonOption, opened
from ray_multicluster_scheduler.cli.render import NONE, state_text, stdout_console, write_json
from ray_multicluster_scheduler.cli.times import Times
from ray_multicluster_scheduler.model.job import Event, Job
from ray_multicluster_scheduler.model.resources import show
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.policy.redact import redact_text
from ray_multicluster_scheduler.policy.repeat import RETRY_OF

if TYPE_CHECKING:
    from ray_multicluster_scheduler.runtime import Scheduler


def status(word: IdArgument, *, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Say in one line where a job is.

    The exit code is 0 whatever its state: `raymc wait` judges.
    """
    with opened(config) as scheduler:
        jobs = find_up_to_date(scheduler, word)
        if as_json:
            _write([late.job_row(job) for job in jobs])
            return
        console = stdout_console()
        times = Times.of(console)
        for job in jobs:
            named = (f"{job.submission_id} ", "bold") if len(jobs) > 1 else ""
            where = f" on {job.cluster}" if job.cluster else ""
            words = f"{where} {times.since(job.changed_at)}: {late.job_row(job)['message']}"
            console.print(Text.assemble(named, state_text(job.state), words), soft_wrap=True)
        _footer(console, scheduler, jobs)


def info(word: IdArgument, *, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show all that is known of a job; secrets are hidden."""
    with opened(config) as scheduler:
        jobs = find_up_to_date(scheduler, word)
        known = [scheduler.service.detail(job.submission_id).model_dump(mode="json") for job in jobs]
        logs = [  # `raymc logs` has them whole
            redact_text(facts.pop("logs") or "", scheduler.jobs.secrets(job))
            for job, facts in zip(jobs, known, strict=True)
        ]
        if as_json:
            _write(known)
            return
        console = stdout_console()
        for number, (job, facts, log) in enumerate(zip(jobs, known, logs, strict=True)):
            if number:
                console.print()
            _show_info(console, job, facts, log)
        _footer(console, scheduler, jobs)


def events(word: IdArgument, *, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List every move of a job: from where to where, when and why."""
    with opened(config) as scheduler:
        jobs = find_up_to_date(scheduler, word)
        stories = [_story(scheduler, job) for job in jobs]
        if as_json:
            _write(stories)
            return
        console = stdout_console()
        for job, moves in zip(jobs, stories, strict=True):
            if len(jobs) > 1:
                console.print(Text(job.submission_id, style="bold"))
            console.print(_events(moves, Times.of(console)))
        _footer(console, scheduler, jobs)


def _write(rows: Sequence[object]) -> None:
    """Write the document of one job; of several, a list of them."""
    write_json(rows[0] if len(rows) == 1 else rows)


def _show_info(console: Console, job: Job, known: Mapping[str, Any], log: str) -> None:
    times = Times.of(console)
    console.print(_facts(job, known, times))
    if known["attempts"]:
        console.print(_attempts(known["attempts"], times))
    if job.state is JobState.FAILED and log:
        lines = log.rstrip().splitlines()
        console.print(Text("The end of its log:", style="bold"))
        console.print(Text("\n".join(lines[-late.LAST_LOG_LINES :]), overflow="fold"))


def _story(scheduler: Scheduler, job: Job) -> list[dict[str, Any]]:
    secrets = scheduler.jobs.secrets(job)
    return [
        {**_event_row(event), "reason": redact_text(event.reason, secrets)}
        for event in scheduler.store.events(job.submission_id)
    ]


def _footer(console: Console, scheduler: Scheduler, jobs: Sequence[Job]) -> None:
    if (note := stale_note(scheduler, jobs)) is not None:
        console.print(note)


def _facts(job: Job, known: Mapping[str, Any], times: Times) -> Table:
    env = json.dumps(known["runtime_env"], ensure_ascii=False)
    if not times.for_programs:
        env = yaml.safe_dump(known["runtime_env"], sort_keys=False, allow_unicode=True, width=1000).rstrip()
    rows: list[tuple[str, str | Text | None]] = [
        ("id", Text(job.submission_id, style="bold")),
        ("name", job.spec.own_name),
        ("state", Text.assemble(state_text(job.state), f" {times.since(job.changed_at)}")),
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
        ("repeats", known["metadata"].get(RETRY_OF)),
        ("metadata", _pairs(known["metadata"])),
        ("accepted", times.when(job.accepted_at)),
        ("started", times.when(job.started_at) if job.started_at else None),
        ("ended", times.when(job.ended_at) if job.ended_at else None),
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


def _pairs(metadata: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in metadata.items() if key != RETRY_OF)


def _attempts(attempts: Sequence[Mapping[str, Any]], times: Times) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("attempt", "cluster", "placed", "ran", "outcome"):
        table.add_column(heading, no_wrap=True)
    table.add_column("why", overflow="fold")
    for attempt in attempts:
        ran = Text(times.ran(attempt["started_at"], attempt["ended_at"]))
        outcome = Text(attempt["outcome"] or "open")
        cells = (
            Text(str(attempt["number"])),
            Text(attempt["cluster"]),
            Text(times.when(attempt["placed_at"])),
        )
        table.add_row(*cells, ran, outcome, Text(attempt["reason"]))
    return table


def _event_row(event: Event) -> dict[str, Any]:
    return {
        **asdict(event),
        "old": None if event.old is None else event.old.value,
        "new": event.new.value,
    }


def _events(moves: Sequence[Mapping[str, Any]], times: Times) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("when", "from", "to", "try"):
        table.add_column(heading, no_wrap=True)
    table.add_column("why", overflow="fold")
    for move in moves:
        old, new = move["old"], move["new"]
        table.add_row(
            Text(times.when(move["at"])),
            NONE if old is None else Text(old),
            Text("(stays)", style="dim") if old == new else Text(new),
            Text(str(move["attempt"])) if move["attempt"] else NONE,
            Text(move["reason"]),
        )
    return table
