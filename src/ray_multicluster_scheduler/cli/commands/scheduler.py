"""`raymc scheduler`: the process that schedules the jobs of a store."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ray_multicluster_scheduler.cli import lazy_imports
from ray_multicluster_scheduler.cli.console import say, write_json
from ray_multicluster_scheduler.cli.options.common import ConfigOption, JsonOption, PlainCommand
from ray_multicluster_scheduler.cli.registry import CommandGroup
from ray_multicluster_scheduler.cli.session import leader_name, opened_here
from ray_multicluster_scheduler.client.display import age
from ray_multicluster_scheduler.errors import InvalidRequest

if TYPE_CHECKING:
    from ray_multicluster_scheduler.background import ControlFiles, Record
    from ray_multicluster_scheduler.runtime import Scheduler

scheduler_app = typer.Typer(
    cls=CommandGroup, help="The process that schedules the jobs of a store.", no_args_is_help=True
)

_STARTED_BY = {
    "background": "in the background; ends by itself when no job is open",
    "run": "started by `raymc scheduler run`",
    "serve": "child of `raymc serve`",
}


@scheduler_app.command(cls=PlainCommand)
def run(*, config: ConfigOption = None) -> None:
    """Schedule in the foreground until Ctrl-C or SIGTERM; for systemd and containers.

    It takes over from a scheduler in the background. SIGHUP reads clusters.yaml again.
    """
    raise typer.Exit(lazy_imports.run_in_foreground(config))


@scheduler_app.command(cls=PlainCommand)
def start(*, config: ConfigOption = None) -> None:
    """Start the scheduler in the background, as the first submitted job does."""
    with _opened(config) as (scheduler, files):
        leader = scheduler.service.leader()
        if leader is not None:
            typer.echo(f"A scheduler runs already: {leader_name(leader)}.")
            return
        lock = files.take(timeout_s=1.0)
        if lock is None:
            typer.echo("A scheduler is being started already.")
            return
        try:
            pid = lazy_imports.start_scheduler(files, lock, scheduler.config, os.environ)
        finally:
            lock.release()
        linger = age(scheduler.config.settings.linger_s)
        typer.echo(f"Started: process {pid}. It ends by itself when no job has been open for {linger}.")


@scheduler_app.command(cls=PlainCommand)
def status(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show who schedules the jobs of this store. The exit code is 0 if somebody does, otherwise 1."""
    with _opened(config) as (scheduler, files):
        leader, record = scheduler.service.leader(), files.record()
        known = record if record is not None and (leader is None or record.is_holder(leader.holder)) else None
        if as_json:
            write_json(_facts(scheduler, None if leader is None else leader.holder, known))
        elif leader is None:
            typer.echo("No scheduler runs for this store; the next submitted job starts one.")
        else:
            typer.echo(f"{leader_name(leader).capitalize()} schedules.")
            for line in _lines(known, files):
                typer.echo(line)
        if leader is None:
            raise typer.Exit(1)


@scheduler_app.command(cls=PlainCommand)
def stop(*, config: ConfigOption = None) -> None:
    """End the scheduler in the background. Jobs on clusters go on; waiting jobs wait."""
    with _opened(config) as (scheduler, files):
        record = files.record()
        if record is not None and record.kind != "background":
            raise InvalidRequest(
                f"process {record.pid} on {record.host} schedules ({_STARTED_BY[record.kind]}): end it there"
            )
        if record is None:
            leader = scheduler.service.leader()
            if leader is not None:
                raise InvalidRequest(
                    f"{leader_name(leader)} schedules, and not in the background: end it there"
                )
            typer.echo("No scheduler runs in the background.")
            return
        if not lazy_imports.ask_to_end(files):
            raise InvalidRequest(
                f"process {record.pid} on {record.host} was told to end and has not ended yet; "
                f"its log is {files.log}"
            )
        typer.echo(f"Ended: process {record.pid}.")
        waiting = sum(scheduler.service.counts(lazy_imports.OPEN_STATES).values())
        if waiting:
            jobs = "1 job is" if waiting == 1 else f"{waiting} jobs are"
            say(f"{jobs} open: the next raymc command, or program, starts a scheduler for it again.")


@scheduler_app.command(cls=PlainCommand)
def logs(
    *,
    config: ConfigOption = None,
    tail: Annotated[int, typer.Option("--tail", "-n", metavar="N", min=1, help="The last N lines.")] = 100,
) -> None:
    """Write the end of the background scheduler's log to stdout."""
    with _opened(config) as (_, files):
        try:
            lines = files.log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            raise InvalidRequest(f"there is no log yet: {files.log}") from None
    sys.stdout.write("".join(f"{line}\n" for line in lines[-tail:]))


@contextmanager
def _opened(config: Path | None) -> Iterator[tuple[Scheduler, ControlFiles]]:
    """Open the store of a configuration on this machine, and the files of its scheduler."""
    with opened_here(config) as scheduler:
        scheduler.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        yield scheduler, lazy_imports.ControlFiles(scheduler.directory)


def _facts(scheduler: Scheduler, holder: str | None, record: Record | None) -> dict[str, Any]:
    return {
        "leader": holder,
        "pid": record and record.pid,
        "kind": record and record.kind,
        "version": record and record.version,
        "config": record and record.config,
        "began_at": record and record.began_at,
        "store": str(scheduler.place),
    }


def _lines(record: Record | None, files: ControlFiles) -> list[str]:
    if record is None:
        return []
    lines = [
        f"  {_STARTED_BY[record.kind]}",
        f"  since     {age(max(0.0, time.time() - record.began_at))} ago, version {record.version}",
        f"  clusters  {record.config}",
    ]
    return [*lines, f"  log       {files.log}"] if record.kind == "background" else lines
