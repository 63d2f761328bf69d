"""How a list of jobs looks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli.views.render import NONE, state_text
from ray_multicluster_scheduler.cli.views.times import Times
from ray_multicluster_scheduler.text.visible import one_line

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.views import JobView

#: With less room than this for the command, ids that we made are shortened; with far less it is left out.
_SHORT_COMMAND, _SHORTEST_COMMAND = 24, 8
#: A name is no story.
_LONGEST_NAME, _SHORT_NAME = 20, 12
#: What the box puts left and right of a table.
_EDGES = 3
#: An id that we made, and the part of it that is enough to name the job.
_GENERATED_ID = re.compile(r"(sub_[0-9a-f]{12})[0-9a-f]{20}")


def jobs_table(jobs: Sequence[JobView], console: Console) -> Table:
    """Return one line per job that fits the screen: only names and commands are cut, ids can be copied."""
    columns = _columns(jobs, Times.of(console))
    room = console.width - _taken(columns)
    if room < _SHORT_COMMAND and console.is_terminal:
        columns["id"] = [Text(short_id(job.submission_id)) for job in jobs]
        for heading in columns.keys() & {"name", "group", "user"}:
            for cell in columns[heading]:
                cell.truncate(_SHORT_NAME, overflow="ellipsis")
        room = console.width - _taken(columns)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), expand=room >= _SHORTEST_COMMAND)
    for heading in columns:
        table.add_column(heading, no_wrap=True, overflow="fold" if heading == "id" else "ellipsis")
    if room >= _SHORTEST_COMMAND:
        columns["command"] = [Text(one_line(job.entrypoint)) for job in jobs]
        table.add_column("command", ratio=1, no_wrap=True, overflow="ellipsis")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    return table


def short_id(submission_id: str) -> str:
    """Shorten an id that we made to what is enough to name its job; other ids stay as they are."""
    found = _GENERATED_ID.fullmatch(submission_id)
    return found[1] if found else submission_id


def _columns(jobs: Sequence[JobView], times: Times) -> dict[str, list[Text]]:
    """Return the cells of all columns but the last; some are there only when there is something to tell."""
    columns = {"id": [Text(job.submission_id) for job in jobs]}
    all_of_them = times.for_programs  # a program counts on its columns
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


def _taken(columns: Mapping[str, Sequence[Text]]) -> int:
    """Return how wide these columns are, each with a blank, and the edges of the table."""
    widest = (max(cell_len(cell.plain) for cell in (Text(name), *cells)) for name, cells in columns.items())
    return sum(width + 1 for width in widest) + _EDGES
