"""What a person sees while one job is waited for: its log on stdout, a line about its state on stderr."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli.console import stderr_console
from ray_multicluster_scheduler.cli.views.log_writer import LogWriter
from ray_multicluster_scheduler.cli.views.render import STATE_STYLES, age
from ray_multicluster_scheduler.clock import SystemClock

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.views import JobView


class JobDisplay(Protocol):
    """Shows one job; used as a context manager."""

    def state(self, job: JobView, why: str) -> None:
        """Show where the job is; `why` says more, where there is more to say."""

    def log(self, piece: str) -> None:
        """Write a piece of its log."""

    def __enter__(self) -> JobDisplay: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def job_display() -> JobDisplay:
    """Return a line that moves on a terminal, and lines that stay elsewhere."""
    console = stderr_console()
    return _MovingLine(console) if console.is_terminal else _PlainLines(console)


def where_it_is(job: JobView) -> str:
    """Write `RUNNING on centos`."""
    return f"{job.state.value} on {job.cluster}" if job.cluster else job.state.value


class _PlainLines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._said = ""
        self._log = LogWriter()

    def __enter__(self) -> _PlainLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.close()

    def state(self, job: JobView, why: str) -> None:
        """Write a line when the state, or the reason to wait, has changed."""
        words = where_it_is(job) + (f": {why}" if why else "")
        if words != self._said and not job.final:  # the end is told by whoever waits
            self._said = words
            self._console.print(f"{job.submission_id}: {words}", soft_wrap=True)

    def log(self, piece: str) -> None:
        self._log.write(piece)


class _MovingLine:
    """One line at the bottom that makes way for the log and comes back after a whole line of it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._line_is_open = False
        self._log = LogWriter()
        self._words = Text(no_wrap=True, overflow="ellipsis")
        line = Table.grid(padding=(0, 1))
        line.add_row(Spinner("line" if console.options.ascii_only else "dots"), self._words)
        self._live = Live(line, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)

    def __enter__(self) -> _MovingLine:
        with uninterrupted():
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with uninterrupted():
            self._live.stop()
            self._log.close()
        if self._line_is_open and sys.stdout.isatty():
            self._console.print()

    def state(self, job: JobView, why: str) -> None:
        since = age(max(0.0, SystemClock().now() - job.changed_at))
        words = Text.assemble((where_it_is(job), STATE_STYLES[job.state]), f" for {since}")
        if why:
            words.append(f": {why}", style="dim")
        self._words.plain, self._words.spans = words.plain, words.spans

    def log(self, piece: str) -> None:
        with uninterrupted():
            self._live.stop()
            self._log.write(piece)
            self._line_is_open = not piece.endswith("\n")
            if not self._line_is_open:
                self._live.start()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back until the terminal is restored: Rich cannot stop a half-started line."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        for number in came[:1]:
            signal.raise_signal(number)
