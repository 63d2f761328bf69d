"""`raymc clusters`: one look at all clusters, or a live view of them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from ray_multicluster_scheduler.cli.clusters_view import Row, as_mapping, overview
from ray_multicluster_scheduler.cli.render import stdout_console
from ray_multicluster_scheduler.config import Config, find_config, load_config
from ray_multicluster_scheduler.engine.clock import SystemClock
from ray_multicluster_scheduler.engine.watch import ClusterWatch
from ray_multicluster_scheduler.ray_api.client import open_ray_api

#: How often the live view is drawn; the clusters are probed at their own pace.
REDRAW_S = 1.0


def clusters(
    *,
    config: Annotated[Path | None, typer.Option(help="Configuration file.", metavar="FILE")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Stay and refresh until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON for programs; null is unknown.")] = False,
) -> None:
    """Show every cluster: health, used and total resources, running jobs, versions.

    A cluster that does not answer is shown as such; the exit code is 0 all the same.
    """
    loaded = load_config(find_config(config, environ=os.environ, cwd=Path.cwd()))
    if not watch:
        asyncio.run(_once(loaded, as_json=as_json))
        return
    try:
        asyncio.run(_live(loaded, as_json=as_json))
    except KeyboardInterrupt:
        return


@asynccontextmanager
async def watching(config: Config) -> AsyncIterator[ClusterWatch]:
    """Open all clusters of a configuration and close them again."""
    apis = {spec.name: open_ray_api(spec, os.environ) for spec in config.clusters}
    try:
        yield ClusterWatch(apis, clock=SystemClock(), settings=config.settings, jitter=random.random)
    finally:
        await asyncio.gather(*(api.close() for api in apis.values()))


async def _once(config: Config, *, as_json: bool) -> None:
    async with watching(config) as watch:
        await watch.step()
        rows = _rows(config, watch)
    _write(rows, stdout_console(), as_json=as_json)


async def _live(config: Config, *, as_json: bool) -> None:
    console = stdout_console()
    async with watching(config) as watch:
        if as_json or not console.is_terminal:
            await watch.step()  # what goes into a pipe is not drawn over: begin with something to say
            await _refresh(
                watch,
                lambda: _write(_rows(config, watch), console, as_json=as_json),
                every_s=config.settings.probe_interval_s,
            )
            return
        with Live(console=console, auto_refresh=False) as live:
            await _refresh(
                watch,
                lambda: live.update(overview(_rows(config, watch), console), refresh=True),
                every_s=REDRAW_S,
            )


async def _refresh(watch: ClusterWatch, draw: Callable[[], None], *, every_s: float) -> None:
    """Follow the clusters and draw them until cancelled."""
    running = asyncio.create_task(watch.run())
    try:
        while not running.done():
            draw()
            await asyncio.wait({running}, timeout=every_s)
        await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _rows(config: Config, watch: ClusterWatch) -> list[Row]:
    now, snapshots = SystemClock().now(), watch.snapshots()
    return [
        Row(
            spec=spec,
            snapshot=snapshots[spec.name],
            jobs=watch.last_jobs(spec.name),
            age_s=snapshots[spec.name].age_s(now),
        )
        for spec in config.clusters
    ]


def _write(rows: list[Row], console: Console, *, as_json: bool) -> None:
    if as_json:  # one document on one line, so that a watched output can be read line by line
        sys.stdout.write(json.dumps([as_mapping(row) for row in rows]) + "\n")
        sys.stdout.flush()
    else:
        console.print(overview(rows, console))
