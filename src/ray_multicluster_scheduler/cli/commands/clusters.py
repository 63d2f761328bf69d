"""`raymc clusters`: one look at all clusters, or a live view of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli.console import stderr_console, stdout_console, write_json
from ray_multicluster_scheduler.cli.options.common import (
    ClusterArgument,
    ConfigOption,
    JsonOption,
    WatchOption,
)
from ray_multicluster_scheduler.cli.session import check_cluster, opened
from ray_multicluster_scheduler.client.display import (
    NONE,
    UNKNOWN,
    Times,
    age,
    amount,
    bar,
    duration,
    plain_signs,
    sign,
    used_of,
)
from ray_multicluster_scheduler.cluster_health.diagnosis import Verdict
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.resources import show

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.current import Client
    from ray_multicluster_scheduler.client.remote import ClusterLook
    from ray_multicluster_scheduler.service.views import ClusterView, ProcessView


# What `raymc clusters` shows of each cluster: a table for people, a mapping for programs.


BAR_WIDTH = 8
_COLOURS = {Health.HEALTHY: "green", Health.UNHEALTHY: "red", Health.UNKNOWN: "dim"}
#: (heading, Ray's name, measured in bytes)
_RESOURCES = (("CPU", "CPU", False), ("GPU", "GPU", False), ("memory", "memory", True))


def overview(rows: Sequence[ClusterView], console: Console) -> RenderableType:
    """Return the table, one line per cluster if that fits and else more, and notes below it."""
    plain = plain_signs(console)
    if not console.is_terminal:
        return Group(_plain_table(rows), *_notes(rows, plain=plain))
    table = _table(rows, stacked=False, plain=plain)
    unlimited = console.options.update(max_width=10_000)
    if console.measure(table, options=unlimited).maximum > console.width:
        table = _table(rows, stacked=True, plain=plain)
    return Group(table, *_notes(rows, plain=plain))


def _table(rows: Sequence[ClusterView], *, stacked: bool, plain: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0 if stacked else 1, 0, 0))
    table.add_column("cluster", overflow="fold", min_width=8)
    for heading in ("health", *(heading for heading, _, _ in _RESOURCES)):
        table.add_column(heading, no_wrap=True)
    table.add_column("jobs", justify="right", no_wrap=True)
    table.add_column("Ray/Py" if stacked else "Ray / Python", no_wrap=True)
    if not stacked:
        table.add_column("latency", no_wrap=True)
        table.add_column("tags", no_wrap=True)
    for row in rows:
        table.add_row(*(_stacked_cells(row, plain=plain) if stacked else _cells(row, plain=plain)))
    return table


def _plain_table(rows: Sequence[ClusterView]) -> Table:
    """Return a table for programs: a word without blanks in every column but the last."""
    names = [heading for heading, _, _ in _RESOURCES]
    table = Table("cluster", "health", "drained", *(f"{n}{more}" for n in names for more in ("", "-claimed")))
    for heading in ("jobs", "ours", "Ray", "Python", "latency", "tags"):
        table.add_column(heading)
    for row in rows:
        ray, python = (*_versions(row), UNKNOWN)[:2]
        drained = "yes" if row.drained else "no"
        cells = [
            Text(row.name),
            _health(row),
            Text(drained),
            *_plain_amounts(row),
            UNKNOWN if row.running_jobs is None else Text(str(row.running_jobs)),
            Text(f"{row.live_jobs}/{row.max_running_jobs}"),
            ray,
            python,
        ]
        table.add_row(*(Text(cell.plain.replace(" ", "")) for cell in (*cells, _latency(row))), _tags(row))
    return table


def _plain_amounts(row: ClusterView) -> list[Text]:
    """Return `used/total` and what is claimed, for each resource."""
    cells = []
    for _, name, is_bytes in _RESOURCES:
        used, total, claimed = (
            "unknown" if amounts is None else amount(amounts.get(name, 0.0), is_bytes=is_bytes)
            for amounts in (row.used, row.total, row.claimed)
        )
        cells += [Text("unknown" if row.total is None else f"{used}/{total}"), Text(claimed)]
    return cells


def _cells(row: ClusterView, *, plain: bool) -> list[Text]:
    """Return the cells of a wide table: one line."""
    return [
        Text(row.name, style="bold"),
        Text(" ").join([_health(row), *_drained(row)]),
        *(Text(" ").join(amount) for amount in _amounts(row, plain=plain)),
        Text(", ").join(_jobs(row)),
        Text(" / ").join(_versions(row)),
        _latency(row),
        _tags(row),
    ]


def _stacked_cells(row: ClusterView, *, plain: bool) -> list[Text]:
    """Return the cells of a narrow table: the same in several lines, in fewer columns."""
    latency = [] if row.age_s is None else [_latency(row)]
    return [
        Text("\n").join([Text(row.name, style="bold"), *([_tags(row)] if row.tags else [])]),
        Text("\n").join([_health(row), *latency, *_drained(row)]),
        *(Text("\n").join(amount) for amount in _amounts(row, plain=plain)),
        Text("\n").join(_jobs(row)),
        Text("\n").join(_versions(row)),
    ]


def _health(row: ClusterView) -> Text:
    return Text(row.health.value.lower(), style=_COLOURS[row.health])


def _drained(row: ClusterView) -> list[Text]:
    return [Text("drained", style="yellow")] if row.drained else []


def _tags(row: ClusterView) -> Text:
    return Text(", ".join(row.tags), style="cyan")


def _jobs(row: ClusterView) -> list[Text]:
    """Return how many jobs run there, where that is known, and how many are ours, of how many."""
    running = [] if row.running_jobs is None else [Text(str(row.running_jobs))]
    return [*running, Text(f"{row.live_jobs}/{row.max_running_jobs} ours")]


def _amounts(row: ClusterView, *, plain: bool) -> list[list[Text]]:
    """Return a bar and its numbers for each resource, or the one word that replaces them."""
    if row.total is None:
        return [[UNKNOWN] for _ in _RESOURCES]
    return [
        _amount(row, name, row.total.get(name, 0.0), is_bytes=is_bytes, plain=plain)
        for _, name, is_bytes in _RESOURCES
    ]


def _amount(row: ClusterView, name: str, total: float, *, is_bytes: bool, plain: bool) -> list[Text]:
    if total <= 0:
        return [NONE]
    used = None if row.used is None else row.used.get(name, 0.0)
    claimed = row.claimed.get(name, 0.0)
    drawn = UNKNOWN
    if used is not None:
        promised = claimed + row.claimed_by_others.get(name, 0.0)
        drawn = bar(used / total, width=BAR_WIDTH, plain=plain, also=promised / total)
    parts = [drawn, Text(used_of(used, total, is_bytes=is_bytes))]
    return [*parts, Text(f"{amount(claimed, is_bytes=is_bytes)} claimed")] if claimed else parts


def _versions(row: ClusterView) -> list[Text]:
    if row.ray_version is None:
        return [UNKNOWN]
    return [Text(row.ray_version), UNKNOWN if row.python_version is None else Text(row.python_version)]


def _latency(row: ClusterView) -> Text:
    """Return how fast the cluster answered, or how old its values are if it no longer answers."""
    if row.latency_s is None or row.age_s is None:
        return UNKNOWN
    if row.problem is not None:
        return Text(f"{age(row.age_s)} ago", style="yellow")
    return Text(duration(row.latency_s))


def _notes(rows: Sequence[ClusterView], *, plain: bool) -> list[Text]:
    """Return the problems, and what other schedulers have claimed."""
    others = [
        Text.assemble(
            sign(Verdict.NOTE, plain=plain),
            (f" {row.name}: ", "bold"),
            f"{show(row.claimed_by_others)} claimed by another scheduler",
        )
        for row in rows
        if row.claimed_by_others
    ]
    return [*_problems(rows, plain=plain), *others]


def _problems(rows: Sequence[ClusterView], *, plain: bool) -> list[Text]:
    return [
        Text.assemble(
            sign(Verdict.NOTE if row.health is Health.HEALTHY else Verdict.PROBLEM, plain=plain),
            (f" {row.name}: ", "bold"),
            row.problem,
        )
        for row in rows
        if row.problem is not None
    ]


#: How often the live view is drawn; the clusters are probed at their own pace.
REDRAW_S = 1.0


def clusters(*, config: ConfigOption = None, watch: WatchOption = False, as_json: JsonOption = False) -> None:
    """Show every cluster: health, used, claimed and total resources, running jobs, versions.

    A cluster that does not answer is shown as such; the exit code is 0 all the same.
    """
    with opened(config) as scheduler:
        if not watch:
            asyncio.run(_once(scheduler, as_json=as_json))
            return
        with suppress(KeyboardInterrupt):
            asyncio.run(_live(scheduler, as_json=as_json))


async def _once(scheduler: Client, *, as_json: bool) -> None:
    async with scheduler.cluster_look() as look:
        await look.step()
        seen = look.views()
    _write(seen, stdout_console(), as_json=as_json)


async def _live(scheduler: Client, *, as_json: bool) -> None:
    console = stdout_console()
    async with scheduler.cluster_look() as look:
        if as_json or not console.is_terminal:
            await look.step()  # what goes into a pipe is not drawn over: begin with something to say
            await refresh(
                look,
                lambda: _write(look.views(), console, as_json=as_json),
                every_s=look.interval_s,
            )
            return
        with Live(console=console, auto_refresh=False) as live:
            await refresh(
                look,
                lambda: live.update(overview(look.views(), console), refresh=True),
                every_s=REDRAW_S,
            )


async def refresh(look: ClusterLook, draw: Callable[[], None], *, every_s: float) -> None:
    """Follow the clusters and draw them until cancelled."""
    running = asyncio.create_task(look.run())
    try:
        while not running.done():
            draw()
            await asyncio.wait({running}, timeout=every_s)
        await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _write(seen: Sequence[ClusterView], console: Console, *, as_json: bool) -> None:
    if as_json:  # one document on one line, so that a watched output can be read line by line
        write_json([cluster.model_dump(mode="json") for cluster in seen], one_line=True)
    else:
        console.print(overview(seen, console))


# `raymc drain` and `raymc undrain`: take a cluster out of service, and back.


ReasonOption = Annotated[str, typer.Option(metavar="TEXT", help="For those who ask why; `explain` shows it.")]


def drain(cluster: ClusterArgument, *, config: ConfigOption = None, reason: ReasonOption = "") -> None:
    """Send no new jobs to a cluster; what runs there may end."""
    live = _mark(config, cluster, reason, drained=True)
    typer.echo(f"{cluster} gets no new jobs; our jobs there, which may end: {live}.")


def undrain(cluster: ClusterArgument, *, config: ConfigOption = None) -> None:
    """Let a cluster have new jobs again.

    This overrides `drained: true` in the configuration.
    """
    _mark(config, cluster, "", drained=False)
    typer.echo(f"{cluster} may have new jobs again.")


def _mark(config: Path | None, cluster: str, reason: str, *, drained: bool) -> int:
    """Write the mark; return how many of our jobs are on the cluster."""
    with opened(config) as scheduler:
        check_cluster(scheduler, cluster)
        scheduler.service.set_drained(cluster, drained=drained, reason=reason)
        return sum(seen.live_jobs for seen in scheduler.service.clusters() if seen.name == cluster)


# `raymc ps`: what runs inside each cluster, and why: jobs, actors, tasks, bridges, Ray Client sessions.


def ps(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show what runs inside each cluster and why: jobs, actors, tasks, bridges, Ray Client sessions.

    Looks over HTTP only, so it starts nothing on any cluster.
    """
    with opened(config) as scheduler:
        found = scheduler.processes()
    if as_json:
        write_json(found.model_dump(mode="json"))
        return
    console = stdout_console()
    nothing = "Nothing runs on any cluster that answers."
    console.print(_process_table(found.items, Times.of(console)) if found.items else nothing)
    for name, problem in found.problems.items():
        stderr_console().print(f"{name}: not seen: {problem}")


def _process_table(items: Sequence[ProcessView], times: Times) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("cluster", "kind", "pid", "state", "age", "what", "why"):
        table.add_column(heading, overflow="fold")
    for item in items:
        pid = NONE if item.pid is None else Text(str(item.pid))
        ran = times.ran(item.started_at, None)
        table.add_row(item.cluster, item.kind, pid, item.state, ran, item.what, item.why)
    return table
