"""`raymc clusters`: one look at all clusters, or a live view of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from ray_multicluster_scheduler.cli.console import stdout_console, write_json
from ray_multicluster_scheduler.cli.options.common import ConfigOption, JsonOption, WatchOption
from ray_multicluster_scheduler.cli.session import opened
from ray_multicluster_scheduler.cli.views.clusters import overview

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.cluster_look import ClusterLook
    from ray_multicluster_scheduler.client.current import Handle
    from ray_multicluster_scheduler.service.views import ClusterView


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


async def _once(scheduler: Handle, *, as_json: bool) -> None:
    async with scheduler.cluster_look() as look:
        await look.step()
        seen = look.views()
    _write(seen, stdout_console(), as_json=as_json)


async def _live(scheduler: Handle, *, as_json: bool) -> None:
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
