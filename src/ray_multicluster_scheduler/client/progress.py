"""What a waiting person sees: one bar on a terminal, one log line from time to time elsewhere."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ray_multicluster_scheduler.model.job import Job

log = logging.getLogger(__name__)

Show = Callable[[Mapping[str, Job]], None]


@contextmanager
def progress_display(total: int) -> Iterator[Show]:
    """Yield a function that shows how far the jobs are."""
    if not sys.stderr.isatty():
        yield lambda jobs: log.info("%s", summary(jobs))
        return
    columns = (
        TextColumn("jobs"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda jobs: progress.update(
            task, completed=sum(job.final for job in jobs.values()), description=summary(jobs)
        )


def summary(jobs: Mapping[str, Job]) -> str:
    """Write how many jobs are in which state: `3 RUNNING, 2 SUCCEEDED`."""
    counts = Counter(job.state.value for job in jobs.values())
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "nothing to wait for"
