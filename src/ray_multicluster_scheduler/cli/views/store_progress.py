"""What a person sees while a store is copied: how many of its rows were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ray_multicluster_scheduler.cli.console import say, stderr_console

#: How often a line is written where no terminal is.
EVERY_S = 10.0


@contextmanager
def copying_display(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback for (rows copied, rows in all): a bar on a terminal, few lines elsewhere."""
    console = stderr_console()
    if console.is_terminal:
        columns = (
            TextColumn(what),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rows"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(what, total=None)

            def show(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            yield show
        return
    said_at = monotonic()  # a small store is not worth a line

    def tell(done: int, total: int) -> None:
        nonlocal said_at
        if monotonic() - said_at >= EVERY_S:
            said_at = monotonic()
            say(f"{what}: {done} of {total} rows")

    yield tell
