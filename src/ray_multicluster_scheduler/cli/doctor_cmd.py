"""`raymc doctor`: what is wrong with the clusters or their configuration, and what to do about it."""

from __future__ import annotations

import asyncio
import os
import platform
import random
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict
from importlib import metadata
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli import late
from ray_multicluster_scheduler.cli.options import ConfigOption, JsonOption, open_config
from ray_multicluster_scheduler.cli.render import plain_signs, sign, stdout_console, write_json
from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.policy.diagnosis import Check, Evidence, Verdict, Versions, diagnose

if TYPE_CHECKING:
    from ray_multicluster_scheduler.config import Config


Report = Mapping[str, tuple[Check, ...]]


def doctor(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Check every cluster: address, dashboard, token, versions, environment, ports.

    ✓ fine, ✗ a problem with what to do, – worth knowing or not checkable. Exit code 1 if there is any ✗.
    """
    loaded = open_config(config)
    report = {name: diagnose(evidence) for name, evidence in asyncio.run(_examine_all(loaded)).items()}
    problems = sum(check.verdict is Verdict.PROBLEM for checks in report.values() for check in checks)
    if as_json:
        _write_json(report, problems)
    else:
        _print(loaded, report, problems, stdout_console())
    if problems:
        raise typer.Exit(1)


async def _examine_all(config: Config) -> dict[str, Evidence]:
    async with AsyncExitStack() as stack:
        examined = await asyncio.gather(*(_examine(spec, config, stack) for spec in config.clusters))
    return {evidence.spec.name: evidence for evidence in examined}


async def _examine(spec: ClusterSpec, config: Config, stack: AsyncExitStack) -> Evidence:
    timeout_s = config.settings.probe_timeout_s
    api = await stack.enter_async_context(late.open_ray_api(spec, os.environ, request_timeout_s=timeout_s))
    anonymous = await stack.enter_async_context(late.HttpRayApi(spec, request_timeout_s=timeout_s))
    return await late.examine(
        spec,
        api=api,
        anonymous=anonymous,
        watch=late.ClusterWatch(
            {spec.name: api},
            clock=SystemClock(),
            settings=config.settings,
            jitter=random.random,
            lists_jobs=True,
        ),
        token_set=bool(spec.auth_token_env and os.environ.get(spec.auth_token_env)),
        ours=Versions(ray=metadata.version("ray"), python=platform.python_version()),
        timeout_s=timeout_s,
        folder=config.path.resolve().parent,
    )


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
