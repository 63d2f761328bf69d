"""`raymc local`: real Ray clusters on this machine, to try everything out without a cluster of one's own."""

from __future__ import annotations

import json
import os
import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli.console import INTERRUPTED, say, stdout_console
from ray_multicluster_scheduler.cli.options.common import PlainCommand
from ray_multicluster_scheduler.cli.registry import CommandGroup
from ray_multicluster_scheduler.config import home_dir
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.local import HeadSpec, HeadState, Phase, Sandbox
from ray_multicluster_scheduler.local.sandbox import Report

local_app = typer.Typer(
    cls=CommandGroup, help="Start and stop real Ray clusters on this machine.", no_args_is_help=True
)

DEFAULT_CLUSTERS = 2
DEFAULT_CPUS = 4
_STYLES = {HeadState.RUNNING: "green", HeadState.SILENT: "yellow", HeadState.STOPPED: "red"}


@local_app.command(cls=PlainCommand)
def up(
    *,
    clusters: Annotated[int | None, typer.Option(min=1, help="How many clusters; 2 if not said.")] = None,
    cpus: Annotated[
        str | None, typer.Option(metavar="NUMBERS", help="CPUs of all or of each: 4 or 4,8.")
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(metavar="NUMBERS", help="Logical GPUs of all or of each: 1 or 0,1.")
    ] = None,
    names: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Names of the clusters: centos,mac.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Clusters that want a token: mac.")
    ] = None,
    python: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PATH", help="Interpreter of a cluster, with its own Ray."),
    ] = None,
) -> None:
    """Start clusters, all at once, and write a clusters.yaml for them.

    Run again, it starts those that have died; without options it keeps the clusters that are there.
    """
    home = home_dir(os.environ)
    there = Sandbox.find(home)
    asked = (clusters, cpus, gpus, names, token, python or None)
    if there is None or any(option is not None for option in asked):
        tokens = {spec.name: spec.token for spec in there.specs if spec.token} if there else {}
        sandbox = Sandbox(
            home,
            wanted(
                clusters=clusters,
                cpus=cpus,
                gpus=gpus,
                names=names,
                token=token,
                python=python or [],
                tokens=tokens,
            ),
        )
    else:
        sandbox = there
    try:
        with _progress() as report:
            sandbox.up(report)
    except KeyboardInterrupt:
        say("Interrupted: what this command had begun to start is stopped again.", style="yellow")
        raise typer.Exit(INTERRUPTED) from None
    _show(_rows(sandbox))
    _tell_tokens(sandbox)
    typer.echo("Next:  raymc clusters    To stop them:  raymc local down")


@local_app.command(cls=PlainCommand)
def down() -> None:
    """Stop the clusters and all of their processes, also those that an interrupted `up` left behind.

    The jobs that have run there can still be looked at.
    """
    ended = Sandbox.clean(home_dir(os.environ))
    if not ended:
        typer.echo("No local clusters were running.")
        return
    typer.echo(f"Stopped; {ended} processes ended. `raymc jobs` still shows what has run there.")


@local_app.command(cls=PlainCommand)
def status(*, as_json: Annotated[bool, typer.Option("--json", help="JSON for programs.")] = False) -> None:
    """Show the clusters. The exit code is 0 when there are some and all of them answer, otherwise 1."""
    sandbox = Sandbox.find(home_dir(os.environ))
    rows = _rows(sandbox) if sandbox else []
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    elif rows:
        _show(rows)
    else:
        typer.echo("No local clusters are up; `raymc local up` starts some.")
    if not rows or any(row["state"] != HeadState.RUNNING.value for row in rows):
        raise typer.Exit(1)


def wanted(
    *,
    clusters: int | None,
    cpus: str | None,
    gpus: str | None,
    names: str | None,
    token: str | None,
    python: Sequence[str],
    tokens: Mapping[str, str],
) -> list[HeadSpec]:
    """Make the clusters of the options; `tokens` are those that running clusters have already."""
    cpu_list, gpu_list, name_list = _numbers("--cpus", cpus), _numbers("--gpus", gpus), _words(names)
    count = clusters or len(name_list) or max(len(cpu_list), len(gpu_list), DEFAULT_CLUSTERS)
    name_list = name_list or [f"local-{number}" for number in range(1, count + 1)]
    guarded = _of_these("--token", _words(token), name_list)
    interpreters = _interpreters(python, name_list)
    if len(name_list) != count:
        raise InvalidRequest(f"--names has {len(name_list)} names for {count} clusters")
    return [
        HeadSpec(
            name=name,
            cpus=cpu_count,
            gpus=gpu_count,
            token=tokens.get(name) or secrets.token_hex(32) if name in guarded else None,
            python=interpreters.get(name),
        )
        for name, cpu_count, gpu_count in zip(
            name_list,
            _for_each("--cpus", cpu_list or [DEFAULT_CPUS], count),
            _for_each("--gpus", gpu_list or [0], count),
            strict=True,
        )
    ]


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in text.split(",")] if text is not None else []


def _numbers(option: str, text: str | None) -> list[int]:
    try:
        return [int(word) for word in _words(text)]
    except ValueError:
        raise InvalidRequest(f"{option} wants whole numbers such as 4 or 4,8, not {text!r}") from None


def _for_each(option: str, values: list[int], count: int) -> list[int]:
    """Give one value to all clusters, or each its own."""
    if len(values) not in {1, count}:
        raise InvalidRequest(
            f"{option} has {len(values)} numbers for {count} clusters; give one, or one for each"
        )
    return values * count if len(values) == 1 else values


def _of_these(option: str, asked: list[str], names: Sequence[str]) -> list[str]:
    for name in asked:
        if name not in names:
            raise InvalidRequest(f"{option} names {name!r}, but the clusters are {', '.join(names)}")
    return asked


def _interpreters(pairs: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not equals or not os.access(path, os.X_OK):
            raise InvalidRequest(
                f"--python wants NAME=PATH with the path of a Python interpreter, not {pair!r}"
            )
        found[name] = str(Path(path).absolute())
    _of_these("--python", list(found), names)
    return found


def _rows(sandbox: Sandbox) -> list[dict[str, str | int]]:
    heads = sandbox.heads
    return [
        {
            "name": spec.name,
            "cpus": spec.cpus,
            "gpus": spec.gpus,
            "dashboard": heads[spec.name].dashboard,
            "client_address": heads[spec.name].client_address,
            "state": sandbox.state_of(spec.name).value,
        }
        for spec in sandbox.specs
    ]


def _show(rows: Sequence[Mapping[str, str | int]]) -> None:
    table = Table("cluster", "CPUs", "GPUs", "dashboard", "state", box=None, pad_edge=False)
    for row in rows:
        state = Text(str(row["state"]), style=_STYLES[HeadState(row["state"])])
        table.add_row(str(row["name"]), str(row["cpus"]), str(row["gpus"]), str(row["dashboard"]), state)
    stdout_console().print(table)


def _tell_tokens(sandbox: Sandbox) -> None:
    """Say how the other commands get the tokens, without showing one."""
    for spec in sandbox.specs:
        if spec.token_variable:
            path = shlex.quote(str(sandbox.token_file(spec.name)))
            typer.echo(f'Token of {spec.name}:  export {spec.token_variable}="$(cat {path})"')


@contextmanager
def _progress() -> Iterator[Report]:
    """Show one moving line per cluster in a terminal, and one plain line per change elsewhere."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda name, phase: console.print(f"{name}: {phase.value}", soft_wrap=True)
        return
    columns = (
        SpinnerColumn(finished_text="[green]✓[/]"),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as display:
        tasks: dict[str, TaskID] = {}

        def report(name: str, phase: Phase) -> None:
            if name not in tasks:
                tasks[name] = display.add_task(name, total=1)
            done = int(phase is Phase.READY)
            display.update(tasks[name], description=f"{name}: {phase.value}", completed=done)

        yield report
