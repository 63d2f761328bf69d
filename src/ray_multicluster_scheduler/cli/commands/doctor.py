"""`raymc doctor`: what is wrong with the clusters or their configuration, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli.console import stdout_console, write_json
from ray_multicluster_scheduler.cli.options.common import ConfigOption, JsonOption
from ray_multicluster_scheduler.cli.session import opened_here
from ray_multicluster_scheduler.cli.views.render import plain_signs, sign
from ray_multicluster_scheduler.cluster_health.diagnosis import Check, Verdict

if TYPE_CHECKING:
    from ray_multicluster_scheduler.config import Config


Report = Mapping[str, tuple[Check, ...]]


def doctor(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Check every cluster: address, dashboard, token, versions, environment, ports.

    ✓ fine, ✗ a problem with what to do, – worth knowing or not checkable. Exit code 1 if there is any ✗.
    """
    with opened_here(config) as scheduler:
        loaded, report = scheduler.config, scheduler.doctor()
    problems = sum(check.verdict is Verdict.PROBLEM for checks in report.values() for check in checks)
    if as_json:
        _write_json(report, problems)
    else:
        _print(loaded, report, problems, stdout_console())
    if problems:
        raise typer.Exit(1)


def _write_json(report: Report, problems: int) -> None:
    clusters = [
        {"name": name, "checks": [asdict(check) for check in checks]} for name, checks in report.items()
    ]
    write_json({"problems": problems, "clusters": clusters})


def _print(config: Config, report: Report, problems: int, console: Console) -> None:
    for name, checks in report.items():
        console.print(Text.assemble((name, "bold"), "  ", (config.cluster(name).dashboard, "dim")))
        console.print(_table(checks, plain=plain_signs(console)))
        console.print()
    console.print(
        Text(f"{problems} problem{'s' if problems != 1 else ''} found", style="red")
        if problems
        else Text("No problem found.", style="green")
    )


def _table(checks: tuple[Check, ...], *, plain: bool) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=4, justify="right", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for check in checks:
        if check.verdict is not Verdict.SKIPPED:
            says = Text(check.says)
            if check.advice:
                says.append(f"\n{'->' if plain else '→'} {check.advice}", style="yellow")
            grid.add_row(sign(check.verdict, plain=plain), check.name, says)
    skipped = [check.name for check in checks if check.verdict is Verdict.SKIPPED]
    if skipped:
        says = Text(f"{', '.join(skipped)}: solve the problems above first")
        grid.add_row(sign(Verdict.SKIPPED, plain=plain), "not checked", says)
    return grid
