"""`raymc clusters`: one look at all clusters, or a live view of them."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from ray_multicluster_scheduler.cli import late
from ray_multicluster_scheduler.cli.clusters_view import Row, as_mapping, overview
from ray_multicluster_scheduler.cli.options import ConfigOption, JsonOption, WatchOption, open_config
from ray_multicluster_scheduler.cli.render import stdout_console, write_json
from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.config.find import state_dir
from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.model.resources import Resources
from ray_multicluster_scheduler.policy.views import held_by_cluster
from ray_multicluster_scheduler.ports import JobStore

if TYPE_CHECKING:
    from ray_multicluster_scheduler.config import Config
    from ray_multicluster_scheduler.engine.watch import ClusterWatch


#: How often the live view is drawn; the clusters are probed at their own pace.
REDRAW_S = 1.0


def clusters(*, config: ConfigOption = None, watch: WatchOption = False, as_json: JsonOption = False) -> None:
    """Show every cluster: health, used, claimed and total resources, running jobs, versions.

    A cluster that does not answer is shown as such; the exit code is 0 all the same.
    """
    loaded = open_config(config)
    if not watch:
        asyncio.run(_once(loaded, as_json=as_json))
        return
    try:
        asyncio.run(_live(loaded, as_json=as_json))
    except KeyboardInterrupt:
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """What our own store says of the clusters, by their names."""

    #: Marks made by `raymc drain` and `undrain`: (drained, reason).
    drains: Mapping[str, tuple[bool, str]] = field(default_factory=dict)
    #: What our live jobs claim.
    claims: Mapping[str, Resources] = field(default_factory=dict)


@asynccontextmanager
async def watching(config: Config) -> AsyncIterator[ClusterWatch]:
    """Open all clusters of a configuration and close them again."""
    apis = {spec.name: late.open_ray_api(spec, os.environ) for spec in config.clusters}
    try:
        yield late.ClusterWatch(
            apis, clock=SystemClock(), settings=config.settings, jitter=random.random, lists_jobs=True
        )
    finally:
        await asyncio.gather(*(api.close() for api in apis.values()))


async def _once(config: Config, *, as_json: bool) -> None:
    async with watching(config) as watch:
        await watch.step()
        rows = cluster_rows(config, watch, _books(config))
    _write(rows, stdout_console(), as_json=as_json)


async def _live(config: Config, *, as_json: bool) -> None:
    console = stdout_console()
    async with watching(config) as watch:

        def rows() -> list[Row]:
            return cluster_rows(config, watch, _books(config))

        if as_json or not console.is_terminal:
            await watch.step()  # what goes into a pipe is not drawn over: begin with something to say
            await refresh(
                watch,
                lambda: _write(rows(), console, as_json=as_json),
                every_s=config.settings.probe_interval_s,
            )
            return
        with Live(console=console, auto_refresh=False) as live:
            await refresh(
                watch,
                lambda: live.update(overview(rows(), console), refresh=True),
                every_s=REDRAW_S,
            )


async def refresh(watch: ClusterWatch, draw: Callable[[], None], *, every_s: float) -> None:
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


def _books(config: Config) -> Books:
    """Read the store of a configuration; where none can be read, nothing is drained or claimed."""
    try:
        with closing(late.open_store(state_dir(config.path, os.environ), create=False)) as store:
            return books_of(store)
    except StoreError:
        return Books()


def books_of(store: JobStore) -> Books:
    """Read what an open store says of the clusters."""
    return Books(drains=store.drained(), claims=held_by_cluster(store.live()))


def cluster_rows(config: Config, watch: ClusterWatch, books: Books) -> list[Row]:
    """Return what is known of each cluster now."""
    now, snapshots = SystemClock().now(), watch.snapshots()
    return [
        Row(
            spec=replace(spec, drained=books.drains.get(spec.name, (spec.drained, ""))[0]),
            snapshot=snapshots[spec.name],
            jobs=listing.jobs if (listing := watch.listing(spec.name)) else None,
            age_s=snapshots[spec.name].age_s(now),
            claimed=books.claims.get(spec.name, {}),
        )
        for spec in config.clusters
    ]


def _write(rows: list[Row], console: Console, *, as_json: bool) -> None:
    if as_json:  # one document on one line, so that a watched output can be read line by line
        write_json([as_mapping(row) for row in rows], one_line=True)
    else:
        console.print(overview(rows, console))
