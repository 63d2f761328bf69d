"""`raymc ps`: what runs inside each cluster, and why: jobs, actors, tasks, bridges, Ray Client sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli.console import stderr_console, stdout_console, write_json
from ray_multicluster_scheduler.cli.options.common import ConfigOption, JsonOption
from ray_multicluster_scheduler.cli.session import opened
from ray_multicluster_scheduler.cli.views.render import NONE
from ray_multicluster_scheduler.cli.views.times import Times

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.views import ProcessView


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
    console.print(_table(found.items, Times.of(console)) if found.items else nothing)
    for name, problem in found.problems.items():
        stderr_console().print(f"{name}: not seen: {problem}")


def _table(items: Sequence[ProcessView], times: Times) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("cluster", "kind", "pid", "state", "age", "what", "why"):
        table.add_column(heading, overflow="fold")
    for item in items:
        pid = NONE if item.pid is None else Text(str(item.pid))
        ran = times.ran(item.started_at, None)
        table.add_row(item.cluster, item.kind, pid, item.state, ran, item.what, item.why)
    return table
