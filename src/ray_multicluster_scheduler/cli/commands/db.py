"""`raymc db`: check, back up, restore and move the store of a configuration."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli import lazy_imports
from ray_multicluster_scheduler.cli.console import say, stderr_console, stdout_console, write_json, write_line
from ray_multicluster_scheduler.cli.options.common import ConfigOption, JsonOption, PlainCommand, YesOption
from ray_multicluster_scheduler.cli.registry import CommandGroup
from ray_multicluster_scheduler.cli.session import confirm, open_config
from ray_multicluster_scheduler.client.display import plain_signs, sign
from ray_multicluster_scheduler.config.store_place import STORE_VARIABLE, StorePlace, store_place
from ray_multicluster_scheduler.errors import InvalidRequest

if TYPE_CHECKING:
    from ray_multicluster_scheduler.config import Config
    from ray_multicluster_scheduler.maintenance import Copied, StoreReport


# What a person sees while a store is copied: how many of its rows were.


#: How often a line is written where no terminal is.
EVERY_S = 10.0


@contextmanager
def copying_display(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback for (rows copied, rows in all): a bar on a terminal, few lines elsewhere."""
    console = stderr_console()
    if console.is_terminal:
        columns = (
            TextColumn(what),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rows"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(what, total=None)

            def show(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            yield show
        return
    said_at = monotonic()  # a small store is not worth a line

    def tell(done: int, total: int) -> None:
        nonlocal said_at
        if monotonic() - said_at >= EVERY_S:
            said_at = monotonic()
            say(f"{what}: {done} of {total} rows")

    yield tell


db_app = typer.Typer(
    cls=CommandGroup,
    help="Check, back up, restore and move the store: where jobs and history are kept.",
    no_args_is_help=True,
)

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PLACE",
        help="The store, instead of the configured one: a directory, or postgresql://user@host/database.",
    ),
]
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The file of the backup.")]


@db_app.command(cls=PlainCommand)
def check(*, config: ConfigOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Say what is in the store, and check that all of it fits together; nothing is written.

    Exit code 1 if there is a problem; each says what to do next. Schedulers may run meanwhile.
    """
    report = lazy_imports.examine(_place(open_config(config), store))
    if as_json:
        write_json({**asdict(report), "jobs": dict(report.jobs), "problems": report.problems})
    else:
        _show(report)
    if report.problems:
        raise typer.Exit(1)


@db_app.command(cls=PlainCommand)
def backup(
    file: FileArgument,
    *,
    config: ConfigOption = None,
    store: StoreOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")] = False,
) -> None:
    """Write the whole store into one file that only you can read, while schedulers run.

    The file is a store on SQLite, whatever database the store is on. It holds the secrets of jobs.
    """
    place = _place(open_config(config), store)
    with copying_display("backing up") as progress:
        copied = lazy_imports.back_up(place, file, replace=force, progress=progress)
    write_line(f"{file}: {_what(copied)}")
    _tell_broken(copied)
    if place.url is None and (place.directory / "packages").is_dir():
        say(f"Packages are files in {place.directory / 'packages'}; they are not part of it.")


@db_app.command(cls=PlainCommand)
def restore(file: FileArgument, *, config: ConfigOption = None, store: StoreOption = None) -> None:
    """Make a store of a backup, in a place where no store is.

    Stop all schedulers first. Jobs that were submitted or that ended after the backup are not in it.
    """
    place = _place(open_config(config), store)
    with copying_display("restoring") as progress:
        copied = lazy_imports.restore(file, place, progress=progress)
    write_line(f"{copied.place}: {_what(copied)}")
    _tell_broken(copied)
    say(
        "This store knows nothing of what happened after the backup. Jobs that were accepted since are "
        "not in it: they may run, or have run, and nobody watches them. Jobs that waited then and were sent "
        "since may run a second time on another cluster. `raymc ps` shows what runs on the clusters: look at "
        "it before you start a scheduler.",
        style="yellow",
    )


@db_app.command(cls=PlainCommand)
def move(
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="PLACE", help="Where it goes: a directory, or postgresql://user@host/database."
        ),
    ],
    config: ConfigOption = None,
    store: StoreOption = None,
    yes: YesOption = False,
) -> None:
    """Move the store to another database or directory, while jobs run on the clusters.

    It asks first. Nothing can be submitted meanwhile. Afterwards the old store is used no more: commands
    on it name the new place. `raymc db backup` makes a copy and leaves the store in use.
    """
    loaded = open_config(config)
    source, target = _place(loaded, store), _place(loaded, to)
    if not yes:
        confirm("move the store, after which every program has to be told its new place")
    with copying_display("copying") as progress:
        copied = lazy_imports.move(source, target, progress=progress)
    write_line(f"{copied.place}: {_what(copied)}")
    _tell_broken(copied)
    say(
        f"Name {copied.place} as `store` under `scheduler:` in {loaded.path}, or with {STORE_VARIABLE}, and "
        "start your schedulers again. They find the running jobs.",
        style="yellow",
    )
    if source.directory != target.directory and (source.directory / "packages").is_dir():
        say(f"Packages are files: copy {source.directory / 'packages'} to {target.directory / 'packages'}.")
    if source.packages == "database" and target.packages is None and loaded.settings.packages is None:
        say("Packages were copied with it: set `packages: database` under `scheduler:` to go on using them.")


@db_app.command(
    cls=PlainCommand,
    hidden=True,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def copy(_context: typer.Context) -> None:
    """Say that this command is called `raymc db move`."""
    raise InvalidRequest(
        "this command is called `raymc db move`, because the old store is used no more afterwards; "
        "`raymc db backup FILE` makes a copy and leaves the store in use"
    )


def _place(config: Config, named: str | None) -> StorePlace:
    address = lazy_imports.server_in(os.environ) or config.settings.address
    if address is not None:
        raise InvalidRequest(
            "this configuration uses a server, and the store is the server's own; run this command where the "
            "server runs, with its configuration and without RAY_MULTICLUSTER_ADDRESS"
        )
    environ: Mapping[str, str] = os.environ if named is None else {**os.environ, STORE_VARIABLE: named}
    return store_place(config, environ)


def _what(copied: Copied) -> str:
    jobs = sum(copied.jobs.values())
    return f"{jobs} jobs ({_states(copied.jobs)}), {copied.rows} rows in all, store {copied.store_id}"


def _states(jobs: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in jobs.items()) or "none"


def _tell_broken(copied: Copied) -> None:
    if copied.broken:
        say(f"It has {len(copied.broken)} problems, as before; `raymc db check` lists them.", style="yellow")


def _show(report: StoreReport) -> None:
    console = stdout_console()
    plain = plain_signs(console)
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    size = None if report.bytes is None else f"{report.bytes / 2**20:.1f} MiB"
    for name, value in {
        "store": report.place,
        "id": report.store_id,
        "schema": report.revision,
        "leader": report.leader or "nobody",
        "jobs": _states(report.jobs),
        "size": size,
    }.items():
        facts.add_row(name, value or "unknown")
    console.print(facts)
    for each in report.checks:
        says = Text.assemble(sign(each.verdict, plain=plain), f" {each.name}: {each.says}")
        if each.advice:
            says.append(f"\n  {'->' if plain else '→'} {each.advice}", style="yellow")
        console.print(says)
