"""`raymc top`: a live screen of clusters and jobs."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import time
import tty
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from ray_multicluster_scheduler.cli import lazy_imports
from ray_multicluster_scheduler.cli.commands.clusters import overview, refresh
from ray_multicluster_scheduler.cli.commands.jobs import jobs_table, no_job
from ray_multicluster_scheduler.cli.console import stdout_console
from ray_multicluster_scheduler.cli.options.common import ConfigOption
from ray_multicluster_scheduler.cli.session import leader_name, opened
from ray_multicluster_scheduler.client.display import STATE_STYLES
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.states import FINAL, LIVE, JobState

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.current import Client
    from ray_multicluster_scheduler.client.remote import ClusterLook
    from ray_multicluster_scheduler.service.api import Service
    from ray_multicluster_scheduler.service.views import JobView


REDRAW_S = 1.0
REASONS_S = 2.0
#: No screen has room for more.
MOST_JOBS = 200
_OPEN = frozenset(JobState) - FINAL
#: Heading, two lines around it, and a line at the end.
_TABLE_FRAME = 4


def top(*, config: ConfigOption = None) -> None:
    """Watch clusters and jobs on one screen; q or Ctrl-C ends it."""
    console = stdout_console()
    if not (console.is_terminal and sys.stdin.isatty()):
        raise InvalidRequest("raymc top needs a terminal; `raymc jobs --watch` and --json work without one")
    with opened(config) as scheduler, suppress(KeyboardInterrupt):
        asyncio.run(_run(scheduler, console))


@dataclass(slots=True, kw_only=True)
class JobsOnScreen:
    """The jobs on the screen, read again when something has changed."""

    service: Service
    newest: int = -1
    look_again_at: float = 0.0
    #: How many are open, by state.
    open: Mapping[JobState, int] = field(default_factory=dict)
    #: What runs, then what waits, the next one first, then what has ended; the newest of those.
    shown: tuple[JobView, ...] = ()

    def refresh(self) -> None:
        """Ask again, if something has happened, or if jobs wait: their reasons change without an event."""
        newest, now = self.service.news(0, timeout_s=0), time.monotonic()
        if newest != self.newest or (JobState.QUEUED in self.open and now >= self.look_again_at):
            self.look_again_at = now + REASONS_S
            self.open = self.service.counts(_OPEN)
            self.shown = (*self._of(LIVE), *self.service.queue(limit=MOST_JOBS), *self._of(FINAL))
            self.newest = newest

    def _of(self, states: Collection[JobState]) -> tuple[JobView, ...]:
        return self.service.list_jobs(
            lazy_imports.JobQuery(states=tuple(sorted(states)), limit=MOST_JOBS)
        ).jobs


async def _run(scheduler: Client, console: Console) -> None:
    quit_asked = asyncio.Event()
    jobs = JobsOnScreen(service=scheduler.service)
    async with scheduler.cluster_look() as look:
        with _keys(quit_asked.set), Live(console=console, screen=True, auto_refresh=False) as live:

            def draw() -> None:
                live.update(_screen(scheduler, look, jobs, console), refresh=True)

            drawing = asyncio.create_task(refresh(look, draw, every_s=REDRAW_S))
            quitting = asyncio.create_task(quit_asked.wait())
            await asyncio.wait({drawing, quitting}, return_when=asyncio.FIRST_COMPLETED)
            for task in (drawing, quitting):
                task.cancel()
            results = await asyncio.gather(drawing, quitting, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):  # a cancelled task is none
            raise result


@contextmanager
def _keys(on_quit: Callable[[], None]) -> Iterator[None]:
    """Read single keys while the screen is up, and restore the terminal afterwards."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    loop = asyncio.get_running_loop()

    def on_key() -> None:
        keys = os.read(keyboard, 64)
        if not keys or b"q" in keys.lower():
            on_quit()

    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, on_key)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _screen(scheduler: Client, look: ClusterLook, jobs: JobsOnScreen, console: Console) -> RenderableType:
    scheduler.ensure_scheduled()
    jobs.refresh()
    upper = Group(
        _header(scheduler, jobs.open),
        overview(look.views(), console),
    )
    room = console.height - len(console.render_lines(upper)) - _TABLE_FRAME
    shown = jobs.shown[: max(1, room)]
    lower = jobs_table(shown, console) if shown else Text(f"\n{no_job(scheduler)}")
    return Group(upper, lower)


def _header(scheduler: Client, open_jobs: Mapping[JobState, int]) -> Text:
    leader = scheduler.service.leader()
    line = Text("raymc top  ", style="bold", no_wrap=True, overflow="ellipsis")
    for state, count in sorted(open_jobs.items()):
        line.append(f"{count} {state.value}  ", style=STATE_STYLES[state])
    who = "no scheduler runs" if leader is None else f"scheduler: {leader_name(leader)}"
    line.append(f"{who}  q quits", style="yellow" if leader is None and open_jobs else "dim")
    return line
