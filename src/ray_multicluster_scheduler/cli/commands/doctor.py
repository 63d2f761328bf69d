"""`raymc doctor`: what is wrong with the clusters or their configuration, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli.console import stdout_console, write_json
from ray_multicluster_scheduler.cli.options.common import ConfigOption, JsonOption, plain_seconds
from ray_multicluster_scheduler.cli.session import opened, opened_here
from ray_multicluster_scheduler.client.display import plain_signs, sign
from ray_multicluster_scheduler.cluster_health.diagnosis import Check, Verdict
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.cluster import TRIAL_S

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.views import ClusterReport


def doctor(
    *,
    config: ConfigOption = None,
    run: Annotated[
        bool,
        typer.Option(
            "--run",
            help="Also run a short job on each cluster in its real environment, and check what it got: "
            "conda, Python, Ray, home_dir, PYTHONPATH, this package, clock, free disk.",
        ),
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            parser=plain_seconds,
            metavar="TIME",
            help="With --run, how long each job may take, such as 5m; 120 seconds by default. Building its "
            "environment counts.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check every cluster: address, dashboard, token, versions, environment, ports.

    ✓ fine, ✗ a problem with what to do, – worth knowing or not checkable. Exit code 1 if there is any ✗.
    """
    if timeout is not None and not run:
        raise InvalidRequest("--timeout is for the jobs of --run; give both, or leave it out")
    if timeout is not None and timeout < 1:
        raise InvalidRequest("--timeout must be one second or more")
    if run:
        with opened(config) as scheduler:
            reports = scheduler.run_doctor(timeout_s=timeout or TRIAL_S)
    else:
        with opened_here(config) as here:
            reports = here.doctor()
    problems = sum(check.verdict is Verdict.PROBLEM for each in reports for check in each.checks)
    if as_json:
        clusters = [report.model_dump(mode="json") for report in reports]
        write_json({"problems": problems, "clusters": clusters})
    else:
        _print(reports, problems, stdout_console())
    if problems:
        raise typer.Exit(1)


def _print(reports: Iterable[ClusterReport], problems: int, console: Console) -> None:
    for report in reports:
        console.print(Text.assemble((report.name, "bold"), "  ", (report.dashboard, "dim")))
        console.print(_table(report.checks, plain=plain_signs(console)))
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
