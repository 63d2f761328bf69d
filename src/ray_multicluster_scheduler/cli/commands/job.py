"""`raymc status`, `info`, `events`: what is known of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ray_multicluster_scheduler.cli import lazy_imports
from ray_multicluster_scheduler.cli.console import stdout_console, write_json
from ray_multicluster_scheduler.cli.leader_status import stale_note
from ray_multicluster_scheduler.cli.options.common import ConfigOption, JobsArgument, JsonOption
from ray_multicluster_scheduler.cli.session import find_jobs, opened
from ray_multicluster_scheduler.cli.views.job import events_table, show_job
from ray_multicluster_scheduler.cli.views.render import state_text
from ray_multicluster_scheduler.cli.views.times import Times

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.current import Handle
    from ray_multicluster_scheduler.service.views import JobView, View


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
            _write_all([[move.model_dump(mode="json") for move in moves] for moves in stories])
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


def _footer(console: Console, scheduler: Handle, jobs: Sequence[JobView]) -> None:
    if (note := stale_note(scheduler, jobs)) is not None:
        console.print(note)
