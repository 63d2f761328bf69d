"""`raymc status`, `info`, `events`, `logs`: what is known of jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli import lazy_imports
from ray_multicluster_scheduler.cli.console import INTERRUPTED, say, stdout_console, write_json, write_line
from ray_multicluster_scheduler.cli.follow_jobs import (
    LogWriter,
    follow,
    follow_all,
    tell_end,
    tell_ends,
    where_it_is,
)
from ray_multicluster_scheduler.cli.options.common import ConfigOption, JobsArgument, JsonOption
from ray_multicluster_scheduler.cli.session import find_jobs, opened, stale_note
from ray_multicluster_scheduler.client.display import NONE, Times, state_text
from ray_multicluster_scheduler.client.result import bytes_of, fetch
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.job_options import JOB_OPTIONS
from ray_multicluster_scheduler.model.resources import show
from ray_multicluster_scheduler.model.result import ResultKind
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.jobs import RETRY_OF

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.current import Client
    from ray_multicluster_scheduler.model.job import JobEvent
    from ray_multicluster_scheduler.service.views import AttemptView, JobDetail, JobView, ResultView, View


# How one job looks: its facts, its attempts and its events.


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


def events_table(moves: Sequence[JobEvent], times: Times) -> Table:
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


def status(words: JobsArgument, *, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Say in one line where a job is.

    The exit code is 0 whatever its state: `raymc wait` judges.
    """
    with opened(config) as scheduler:
        jobs = find_jobs(scheduler, words, None)
        if as_json:
            _write(jobs)
            return
        console = stdout_console()
        times = Times.of(console)
        for job in jobs:
            named = (f"{job.submission_id} ", "bold") if len(jobs) > 1 else ""
            where = f" on {job.cluster}" if job.cluster else ""
            stopping = " (stopping)" if job.stopping else ""
            why = job.waits_for or job.message
            line = f"{stopping}{where} {times.since(job.changed_at)}: {why}"
            console.print(Text.assemble(named, state_text(job.state), line), soft_wrap=True)
        _footer(console, scheduler, jobs)


def info(words: JobsArgument, *, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show all that is known of a job; secrets are hidden."""
    with opened(config) as scheduler:
        jobs = find_jobs(scheduler, words, None)
        details = [scheduler.service.detail(job.submission_id) for job in jobs]
        if as_json:
            _write(details, without={"logs"})  # `raymc logs` has them whole
            return
        console = stdout_console()
        for number, job in enumerate(details):
            if number:
                console.print()
            show_job(console, job)
        _footer(console, scheduler, jobs)


def events(words: JobsArgument, *, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List every move of a job: from where to where, when and why."""
    with opened(config) as scheduler:
        jobs = find_jobs(scheduler, words, None)
        stories = [tuple(lazy_imports.all_events(scheduler.service, job.submission_id)) for job in jobs]
        if as_json:
            _write_all([[asdict(move) for move in moves] for moves in stories])
            return
        console = stdout_console()
        for job, moves in zip(jobs, stories, strict=True):
            if len(jobs) > 1:
                console.print(Text(job.submission_id, style="bold"))
            console.print(events_table(moves, Times.of(console)))
        _footer(console, scheduler, jobs)


def _write(views: Sequence[View], *, without: set[str] | None = None) -> None:
    _write_all([view.model_dump(mode="json", exclude=without) for view in views])


def _write_all(rows: Sequence[object]) -> None:
    """Write the document of one job, or a list of documents for several."""
    write_json(rows[0] if len(rows) == 1 else rows)


def _footer(console: Console, scheduler: Client, jobs: Sequence[JobView]) -> None:
    if (note := stale_note(scheduler, jobs)) is not None:
        console.print(note)


def result(
    words: JobsArgument,
    *,
    config: ConfigOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write it to this file; what a URL names is fetched."
        ),
    ] = None,
) -> None:
    """Write the result that a job has left to stdout or to a file.

    JSON is indented, bytes are written as they are, and of a large result there is its URL. A job leaves it
    in the file that RAY_MULTICLUSTER_RESULT names, or with `set_result`; however the job ended, what its last
    attempt has left is shown.
    """
    with opened(config) as scheduler:
        jobs = find_jobs(scheduler, words, None)
        if len(jobs) > 1:
            raise InvalidRequest(f"these are {len(jobs)} jobs, and one result is written: name one of them")
        found = scheduler.service.result(jobs[0].submission_id)
        if output is not None:
            _write_file(output, fetch(found) if found.kind is ResultKind.URL else _content(found))
        elif found.kind is ResultKind.JSON:
            write_json(found.value)
        elif found.kind is ResultKind.URL:
            write_line(found.value)
        elif sys.stdout.isatty():
            raise InvalidRequest(f"these are {found.size_bytes:,} bytes: write them to a file with -o FILE")
        else:
            sys.stdout.buffer.write(bytes_of(found))
            sys.stdout.buffer.flush()


def _content(found: ResultView) -> bytes:
    if found.kind is ResultKind.BYTES:
        return bytes_of(found)
    return f"{json.dumps(found.value, indent=2, ensure_ascii=False)}\n".encode("utf-8", "replace")


def _write_file(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror or error}") from error
    say(f"{len(content):,} bytes are in {path}.")


#: Each log that is followed holds a connection to its cluster.
MOST_FOLLOWED = 50


def logs(
    words: JobsArgument,
    *,
    config: ConfigOption = None,
    follow_it: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Go on until it has ended; exit code 1 unless it succeeded. Of several jobs, each line "
            "begins with the job's id.",
        ),
    ] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", metavar="N", min=0, help="The last N lines only.")
    ] = None,
) -> None:
    """Write the log of a job to stdout; of several, one after the other.

    It comes from the cluster while the job runs, and from our own copy afterwards.

    Ctrl-C ends the following; the job goes on.
    """
    if follow_it and tail is not None:
        raise InvalidRequest("--tail shows what is there now, --follow what comes: use one of them")
    with opened(config) as scheduler:
        jobs = find_jobs(scheduler, words, None)
        if not follow_it:
            for job in jobs:
                if len(jobs) > 1:
                    write_line(f"==> {job.submission_id} {where_it_is(job)} <==")
                _write_text(scheduler, job, tail)
            return
        if len(jobs) > MOST_FOLLOWED:
            raise InvalidRequest(f"these are {len(jobs)} jobs; --follow shows {MOST_FOLLOWED} at most")
        try:
            if len(jobs) == 1:
                tell_end(follow(scheduler, jobs[0].submission_id))
            else:
                tell_ends(scheduler, follow_all(scheduler, [job.submission_id for job in jobs]))
        except KeyboardInterrupt:
            say(f"{jobs[0].submission_id} goes on." if len(jobs) == 1 else f"{len(jobs)} jobs go on.")
            raise typer.Exit(INTERRUPTED) from None


def _write_text(scheduler: Client, job: JobView, tail: int | None) -> None:
    text = scheduler.service.log(job.submission_id)
    if text is None:
        say(f"{job.submission_id} has no log yet: it is {job.state.value}, {job.message}.")
        return
    lines = text.splitlines(keepends=True)
    writer = LogWriter()
    writer.write("".join(lines if tail is None else lines[max(0, len(lines) - tail) :]))
    writer.close()
