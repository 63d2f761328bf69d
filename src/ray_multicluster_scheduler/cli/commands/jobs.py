"""`raymc jobs`: the newest jobs, filtered, once or live."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from ray_multicluster_scheduler.cli import lazy_imports
from ray_multicluster_scheduler.cli.console import stdout_console, write_json
from ray_multicluster_scheduler.cli.leader_status import stale_note
from ray_multicluster_scheduler.cli.options.common import ConfigOption, GroupOption, JsonOption, WatchOption
from ray_multicluster_scheduler.cli.options.completion import complete_clusters, complete_ids, complete_states
from ray_multicluster_scheduler.cli.options.units import moment
from ray_multicluster_scheduler.cli.session import check_cluster, opened
from ray_multicluster_scheduler.cli.views.jobs import jobs_table, no_job
from ray_multicluster_scheduler.model.states import JobState

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.current import Handle
    from ray_multicluster_scheduler.service.views import JobView

DEFAULT_LIMIT = 20
#: How often ages are drawn anew while nothing changes.
REDRAW_S = 1.0
_NO_MATCH = "No job matches."

Find = Callable[[], "tuple[JobView, ...]"]


def _states(text: str) -> tuple[JobState, ...]:
    """Read states with commas between them."""
    found = [part.strip().upper() for part in text.split(",")]
    if unknown := [part for part in found if part not in JobState.__members__]:
        known = ", ".join(JobState.__members__).lower()
        raise typer.BadParameter(f"{unknown[0].lower()!r} is not one of {known}")
    return tuple(JobState[part] for part in found)


def jobs(
    *,
    config: ConfigOption = None,
    state: Annotated[
        list[Any] | None,
        typer.Option(
            parser=_states,
            metavar="STATE",
            help="In this state: running, failed, ...; several with commas, or repeated.",
            autocompletion=complete_states,
        ),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Of this user.", metavar="NAME")] = None,
    cluster: Annotated[
        str | None, typer.Option(help="On this cluster.", metavar="NAME", autocompletion=complete_clusters)
    ] = None,
    name: Annotated[str | None, typer.Option(help="With this name.", metavar="NAME")] = None,
    group: GroupOption = None,
    tag: Annotated[str | None, typer.Option(help="With this tag.", metavar="WORD")] = None,
    parent: Annotated[
        str | None,
        typer.Option(help="Submitted by the program of this job.", metavar="ID", autocompletion=complete_ids),
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="With this in the id, name, group or command.", metavar="TEXT")
    ] = None,
    since: Annotated[
        float | None,
        typer.Option(
            parser=moment,
            help="Accepted within this time (90s, 30m, 12h, 7d, 2w), or since a date: 2026-11-17.",
            metavar="TIME",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="How many at most; 0 for all.")] = DEFAULT_LIMIT,
    watch: WatchOption = False,
    as_json: JsonOption = False,
) -> None:
    """List jobs, the newest first, that match every filter."""
    with opened(config) as scheduler:
        if cluster is not None:
            check_cluster(scheduler, cluster)
        query = lazy_imports.JobQuery(
            states=tuple(each for states in state for each in states) if state else None,
            user=user,
            cluster=cluster,
            job_id=name,
            group=group,
            tag=tag,
            parent=parent,
            text=text,
            since=since,
        )

        def find() -> tuple[JobView, ...]:
            return tuple(lazy_imports.all_jobs(scheduler.service, query, limit=limit or None))

        if watch:
            with suppress(KeyboardInterrupt):
                _live(scheduler, find, limit, as_json=as_json)
            return
        if as_json:
            _write(find())
        else:
            console = stdout_console()
            console.print(_view(scheduler, find(), limit, console))


def _write(found: tuple[JobView, ...], *, one_line: bool = False) -> None:
    write_json([job.model_dump(mode="json") for job in found], one_line=one_line)


def _view(scheduler: Handle, found: tuple[JobView, ...], limit: int, console: Console) -> RenderableType:
    if not found:
        there_are = scheduler.service.list_jobs(lazy_imports.JobQuery(limit=1)).jobs
        return Text(_NO_MATCH if there_are else no_job(scheduler))
    notes = [Text(f"The newest {limit}; --limit shows more.", style="dim")] if len(found) == limit else []
    if (stale := stale_note(scheduler, found)) is not None:
        notes.append(stale)
    return Group(jobs_table(found, console), *notes)


def _live(scheduler: Handle, find: Find, limit: int, *, as_json: bool) -> None:
    """Draw at each change, and every second, until Ctrl-C; into a pipe only what has changed."""
    console = stdout_console()
    if as_json or not console.is_terminal:
        _append(scheduler, find, limit, console, as_json=as_json)
        return
    with Live(console=console, auto_refresh=False) as live:
        for _ in _ticks(scheduler):
            live.update(_view(scheduler, find(), limit, console), refresh=True)


def _append(scheduler: Handle, find: Find, limit: int, console: Console, *, as_json: bool) -> None:
    said: tuple[JobView, ...] | None = None
    for _ in _ticks(scheduler):
        found = find()
        if found == said:
            continue
        said = found
        if as_json:
            _write(found, one_line=True)
        else:
            console.print(_view(scheduler, found, limit, console))


def _ticks(scheduler: Handle) -> Iterator[None]:
    newest = 0
    while True:
        scheduler.ensure_scheduled()
        yield
        newest = scheduler.service.news(newest, timeout_s=REDRAW_S)
