"""What a waiting person sees: one bar on a terminal, one log line from time to time elsewhere."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.text.visible import visible

log = logging.getLogger(__name__)


class Stated(Protocol):
    """A job, as far as progress is concerned."""

    @property
    def state(self) -> JobState:
        """Where it is."""

    @property
    def final(self) -> bool:
        """Tell whether it has ended."""


class Show(Protocol):
    """Shows how far jobs are."""

    def __call__(self, jobs: Mapping[str, Stated], why: str = "") -> None:
        """Show these jobs as they are now, and why they wait if they do."""


@contextmanager
def progress_display(total: int) -> Iterator[Show]:
    """Yield a function that shows how far the jobs are."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    # Nobody else pays for its import.
    from rich.console import Console  # noqa: PLC0415
    from rich.markup import escape  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("jobs"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda jobs, why="": progress.update(
            task,
            completed=sum(job.final for job in jobs.values()),
            description=escape(summary(jobs, why)),
        )


class _Lines:
    """Logs how far the jobs are whenever that has changed."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, jobs: Mapping[str, Stated], why: str = "") -> None:
        if (words := summary(jobs, why)) != self._said:
            self._said = words
            log.info("jobs: %s", words)


def summary(jobs: Mapping[str, Stated], why: str = "") -> str:
    """Write how many jobs are in which state, and why they wait: `3 RUNNING, 2 SUCCEEDED`."""
    counts = Counter(job.state.value for job in jobs.values())
    words = ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "nothing to wait for"
    return f"{words}; {visible(why)}" if why else words
