"""`raymc jobs`: the newest jobs, filtered, once or live."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli import lazy_imports
from ray_multicluster_scheduler.cli.console import stdout_console, write_json
from ray_multicluster_scheduler.cli.options.common import (
    ConfigOption,
    GroupOption,
    JsonOption,
    WatchOption,
    moment,
)
from ray_multicluster_scheduler.cli.options.completion import complete_clusters, complete_ids, complete_states
from ray_multicluster_scheduler.cli.session import check_cluster, opened, stale_note
from ray_multicluster_scheduler.client.display import NONE, Times, state_text
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.text import one_line

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.current import Client
    from ray_multicluster_scheduler.service.views import JobView


# How a list of jobs looks.


#: With less room than this for the command, names are shortened; with far less it is left out.
_SHORT_COMMAND, _SHORTEST_COMMAND = 24, 8
#: With this much room the reasons get a column of their own; with less, a word in place of the cluster.
_ROOM_FOR_WHY = 60
#: A name is no story.
_LONGEST_NAME, _SHORT_NAME = 20, 12
_NOT_WELL = frozenset({JobState.FAILED, JobState.STOPPED, JobState.LOST, JobState.UNREACHABLE})
#: The reasons to wait (`core/placement/wait_reasons.py`) in a word or two.
IN_SHORT = {
    "TURN": "next",
    "DEPENDENCIES": "needs others",
    "RETRY_DELAY": "tries again",
    "NO_CLUSTER": "no cluster",
    "UNSEEN": "first look",
    "PACED": "next",
    "NO_ROOM": "no room",
    "DRIVER_CAP": "job limit",
    "RESERVED": "reserved",
    "THROTTLED": "held back",
    "UNKNOWN_RESOURCES": "size unknown",
    "UNHEALTHY": "unreachable",
    "DRAINED": "drained",
    "AVOIDED": "avoided",
    "ENVIRONMENT": "environment",
    "VERSION": "Ray version",
    "TOO_LARGE": "too large",
    "EXCLUDED": "excluded",
}
#: What the box puts left and right of a table.
_EDGES = 3
#: An id that we made, and the part of it that is enough to name the job.
_GENERATED_ID = re.compile(r"(sub_[0-9a-f]{12})[0-9a-f]{20}")


def jobs_table(jobs: Sequence[JobView], console: Console) -> Table:
    """Return one line per job that fits the screen: only names and commands are cut, ids can be copied.

    On a screen an id that Python made is as short as one of the command line; its beginning names the job.
    """
    columns = _columns(jobs, Times.of(console))
    room = console.width - _taken(columns)
    whys = [_why(job) for job in jobs]
    is_wide = room >= _ROOM_FOR_WHY
    if not is_wide:
        for job, state, cluster in zip(jobs, columns["state"], columns["cluster"], strict=True):
            if job.state is JobState.QUEUED and job.wait_reason in IN_SHORT:
                cluster.plain = f"({IN_SHORT[job.wait_reason]})"  # it has no cluster, and this is why
            elif job.state is JobState.FAILED and not job.attempt:
                cluster.plain = "(never sent)"
            elif job.state is JobState.FAILED and job.exit_code:
                state.append(f" (exit {job.exit_code})", style="dim")
        room = console.width - _taken(columns)
    if room < _SHORT_COMMAND and console.is_terminal:
        for heading in columns.keys() & {"name", "group", "user"}:
            for cell in columns[heading]:
                cell.truncate(_SHORT_NAME, overflow="ellipsis")
        room = console.width - _taken(columns)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), expand=room >= _SHORTEST_COMMAND)
    for heading in columns:
        table.add_column(heading, no_wrap=True, overflow="fold" if heading == "id" else "ellipsis")
    if room >= _SHORTEST_COMMAND:
        columns["command"] = [Text(one_line(job.entrypoint)) for job in jobs]
        table.add_column("command", ratio=2, no_wrap=True, overflow="ellipsis")
    if is_wide and (any(whys) or not console.is_terminal):
        columns["why"] = [Text(one_line(why)) for why in whys]
        table.add_column("why", ratio=3, no_wrap=True, overflow="ellipsis")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    return table


def short_id(submission_id: str) -> str:
    """Shorten an id that we made to what is enough to name its job; other ids stay as they are."""
    found = _GENERATED_ID.fullmatch(submission_id)
    return found[1] if found else submission_id


def _columns(jobs: Sequence[JobView], times: Times) -> dict[str, list[Text]]:
    """Return the cells of all columns but the last; some are there only when there is something to tell."""
    all_of_them = times.for_programs  # a program counts on its columns
    ids = [job.submission_id if all_of_them else short_id(job.submission_id) for job in jobs]
    columns = {"id": list(map(Text, ids))}
    if all_of_them or any(job.own_name for job in jobs):
        columns["name"] = [_word(job.own_name, times) for job in jobs]
    # The ids of an array begin with its group.
    if all_of_them or any(job.group and not job.submission_id.startswith(f"{job.group}-") for job in jobs):
        columns["group"] = [_word(job.group, times) for job in jobs]
    columns["state"] = [_state(job) for job in jobs]
    columns["cluster"] = [_word(job.cluster, times) for job in jobs]
    if all_of_them or len({job.user for job in jobs}) > 1:
        columns["user"] = [_word(job.user, times) for job in jobs]
    columns["changed"] = [Text(times.when(job.changed_at)) for job in jobs]
    columns["ran"] = [Text(times.ran(job.started_at, job.ended_at)) for job in jobs]
    if all_of_them or any(job.attempt > 1 for job in jobs):
        columns["try"] = [Text(str(job.attempt)) for job in jobs]
    return columns


def _word(word: str | None, times: Times) -> Text:
    if not word:
        return NONE.copy()
    text = Text(one_line(word))
    if not times.for_programs:
        text.truncate(_LONGEST_NAME, overflow="ellipsis")
    return text


def _state(job: JobView) -> Text:
    text = state_text(job.state)
    if job.stopping:
        text.append(" (stopping)", style="dim")
    elif job.setting_up:
        text.append(" (set-up)", style="dim")
    return text


def _why(job: JobView) -> str:
    """Say why a job waits, or why it has not succeeded; nothing of one that goes its way."""
    if job.state is JobState.QUEUED:
        return job.waits_for or job.message
    return job.message if job.state in _NOT_WELL else ""


def _taken(columns: Mapping[str, Sequence[Text]]) -> int:
    """Return how wide these columns are, each with a blank, and the edges of the table."""
    widest = (max(cell_len(cell.plain) for cell in (Text(name), *cells)) for name, cells in columns.items())
    return sum(width + 1 for width in widest) + _EDGES


def no_job(scheduler: Client) -> str:
    """Say that the caller sees no job: those of others may be hidden."""
    me = scheduler.service.me()
    if me.role in {"read", "submit"}:
        return f"No job is yours ({me.user}); the role {me.role!r} does not see those of others."
    return "No job was submitted yet."


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


def _view(scheduler: Client, found: tuple[JobView, ...], limit: int, console: Console) -> RenderableType:
    if not found:
        there_are = scheduler.service.list_jobs(lazy_imports.JobQuery(limit=1)).jobs
        return Text(_NO_MATCH if there_are else no_job(scheduler))
    notes = [Text(f"The newest {limit}; --limit shows more.", style="dim")] if len(found) == limit else []
    if (stale := stale_note(scheduler, found)) is not None:
        notes.append(stale)
    return Group(jobs_table(found, console), *notes)


def _live(scheduler: Client, find: Find, limit: int, *, as_json: bool) -> None:
    """Draw at each change, and every second, until Ctrl-C; into a pipe only what has changed."""
    console = stdout_console()
    if as_json or not console.is_terminal:
        _append(scheduler, find, limit, console, as_json=as_json)
        return
    with Live(console=console, auto_refresh=False) as live:
        for _ in _ticks(scheduler):
            live.update(_view(scheduler, find(), limit, console), refresh=True)


def _append(scheduler: Client, find: Find, limit: int, console: Console, *, as_json: bool) -> None:
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


def _ticks(scheduler: Client) -> Iterator[None]:
    newest = 0
    while True:
        scheduler.ensure_scheduled()
        yield
        newest = scheduler.service.news(newest, timeout_s=REDRAW_S)
