"""Waiting for jobs, with progress, and how they ended; the same for asyncio without a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from ray_multicluster_scheduler.client.current import working_scheduler
from ray_multicluster_scheduler.client.scope import stopped_at_interrupt
from ray_multicluster_scheduler.client.tracebacks import ends_at_the_caller
from ray_multicluster_scheduler.errors import InvalidRequest, JobsFailed
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.api import Service
from ray_multicluster_scheduler.service.arguments import amount, words
from ray_multicluster_scheduler.service.views import JobView
from ray_multicluster_scheduler.text import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

log = logging.getLogger(__name__)

# What a waiting person sees: a table in a notebook, one bar on a terminal, elsewhere a line of the log from
# time to time.


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
    if (shell := notebook()) is not None:
        yield _NotebookTable(shell)
        return
    if not sys.stderr.isatty():
        yield LogLines()
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


def notebook() -> Any:
    """Return the shell of the notebook that this program is run by; None: it is run by none."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell if hasattr(shell, "kernel") else None


def table_of(jobs: Mapping[str, Any]) -> RenderableType:
    """Return the jobs as a table of this moment."""
    from ray_multicluster_scheduler.client.display import jobs_table  # noqa: PLC0415 - costs time to import

    return jobs_table(list(jobs.values()), time.time())


class _NotebookTable:
    """A table below the cell, changed in place."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._begun = False
        self._id = f"raymc-{id(self)}"

    def __call__(self, jobs: Mapping[str, Stated], why: str = "") -> None:
        """Show these jobs."""
        del why
        from ray_multicluster_scheduler.client.display import as_html, as_text  # noqa: PLC0415 - see `table_of`

        table = table_of(jobs)
        self._shell.display_pub.publish(
            {"text/html": as_html(table), "text/plain": as_text(table)},
            transient={"display_id": self._id},
            update=self._begun,
        )
        self._begun = True


class LogLines:
    """Logs how far the jobs are whenever that has changed."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, jobs: Mapping[str, Stated], why: str = "") -> None:
        """Log where the jobs are, unless that was the last line."""
        if (words := summary(jobs, why)) != self._said:
            self._said = words
            log.info("jobs: %s", words)


def summary(jobs: Mapping[str, Stated], why: str = "") -> str:
    """Write how many jobs are in which state, and why they wait: `3 RUNNING, 2 SUCCEEDED`."""
    counts = Counter(job.state.value for job in jobs.values())
    words = ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "nothing to wait for"
    return f"{words}; {visible(why)}" if why else words


#: Progress more often than this would be for nobody.
SHORTEST_INTERVAL_S = 0.1
#: So many ids are named in a hint.
NAMED = 3


@ends_at_the_caller
def wait_for_all_jobs(
    submission_ids: Iterable[str],
    check_interval: float = 5,
    timeout: float | None = None,
    *,
    fail_fast: bool = True,
) -> bool:
    """Wait until all jobs have succeeded and return True, or raise as soon as one has not.

    Args:
        submission_ids: The ids, in any iterable. It reacts at once to each end, whatever `check_interval` is.
        check_interval: Paces the progress that is shown: a bar on a terminal, a table in a notebook, else log
            lines at INFO.
        timeout: Wait for this many seconds at most.
        fail_fast: False waits until all have ended before it raises.

    Raises:
        RuntimeError: A job failed or was stopped; the message names each with its last log lines. The others
            go on.
        TimeoutError: Not all ended within `timeout` seconds; it says which are open, and which failed
            meanwhile. They go on.
        KeyboardInterrupt: Ctrl-C. The jobs go on, unless the decorator
            `graceful_shutdown_on_keyboard_interrupt` stops them.
    """
    tick_s, timeout = _times(check_interval, timeout)
    asked = _asked(submission_ids)
    service = working_scheduler().service
    ids = list(asked)
    with reporting_interrupts(service, ids):
        ids[:] = _ids(service, asked)
        with _watching(ids, fail_fast=fail_fast) as watch:
            for jobs in service.changes(ids, timeout_s=timeout, tick_s=tick_s):
                if watch(jobs):
                    raise_if_failed(service, jobs)
    return True


@ends_at_the_caller
async def wait_for_all_jobs_async(
    submission_ids: Iterable[str],
    check_interval: float = 5,
    timeout: float | None = None,
    *,
    fail_fast: bool = True,
) -> bool:
    """Wait for jobs; see `ray_multicluster_scheduler.wait_for_all_jobs`."""
    tick_s, timeout = _times(check_interval, timeout)
    asked = _asked(submission_ids)
    service = (await asyncio.to_thread(working_scheduler)).service
    ids = await asyncio.to_thread(_ids, service, asked)
    changes = service.changes_async(ids, timeout_s=timeout, tick_s=tick_s)
    with _watching(ids, fail_fast=fail_fast) as watch:
        async with aclosing(changes):
            async for jobs in changes:
                if watch(jobs):
                    await asyncio.to_thread(raise_if_failed, service, jobs)
    return True


def _times(check_interval: float, timeout: float | None) -> tuple[float, float | None]:
    """Return the two lengths of time, checked: a wrong one must not surprise after hours of waiting."""
    tick_s = amount("check_interval", check_interval)
    return max(SHORTEST_INTERVAL_S, tick_s or 0.0), amount("timeout", timeout)


def _asked(submission_ids: Iterable[str]) -> tuple[str, ...]:
    if isinstance(submission_ids, str):
        raise InvalidRequest("submission_ids must be a list of ids; write [id] for a single one")
    return words(
        "submission_ids", tuple(submission_ids) if isinstance(submission_ids, Iterator) else submission_ids
    )


def _ids(service: Service, asked: Sequence[str]) -> list[str]:
    return [job.submission_id for job in service.find_each(asked)]


@contextmanager
def _watching(ids: Sequence[str], *, fail_fast: bool) -> Iterator[Callable[[Mapping[str, JobView]], bool]]:
    """Yield what is to be called with the jobs after each change; it tells whether to raise for one."""
    with progress_display(len(ids)) as show:

        def watch(jobs: Mapping[str, JobView]) -> bool:
            show(jobs)
            return bool(failed(jobs.values())) and (fail_fast or all(job.final for job in jobs.values()))

        yield watch


@contextmanager
def reporting_interrupts(service: Service, ids: Sequence[str]) -> Iterator[None]:
    """Say at Ctrl-C which of the jobs go on, because nothing stops them."""
    try:
        yield
    except KeyboardInterrupt:
        stopped = stopped_at_interrupt()
        if kept := [each for each in dict.fromkeys(ids) if each not in stopped]:
            known = service.get_many(kept)
            _say_that_they_go_on([each for each in kept if each not in known or not known[each].final])
        raise


def _say_that_they_go_on(pending: Sequence[str]) -> None:
    if not pending:
        return
    named = " ".join(pending[:NAMED]) + (" …" if len(pending) > NAMED else "")
    log.warning(
        "interrupted: %d job(s) go on; `raymc stop %s` or stop_job(id) stops them, and "
        "@graceful_shutdown_on_keyboard_interrupt does at Ctrl-C",
        len(pending),
        named,
    )


# How jobs ended, as messages for waiting callers.


#: How much of a failed job's log a waiting caller is shown, and of how many jobs: nobody reads more.
LAST_LOG_LINES = 10
MOST_LOGS = 20


def failed(jobs: Iterable[JobView]) -> list[JobView]:
    """Return those that have ended without success."""
    return [job for job in jobs if job.final and job.state is not JobState.SUCCEEDED]


def raise_if_failed(service: Service, jobs: Mapping[str, JobView]) -> None:
    """Raise `JobsFailed` when one of these jobs has ended without success; it says which and why."""
    bad = failed(jobs.values())
    if not bad:
        return
    told = [*(how_it_failed(service, job) for job in bad[:MOST_LOGS]), *map(_what_failed, bad[MOST_LOGS:])]
    if pending := sum(not job.final for job in jobs.values()):
        told.append(f"{pending} other job(s) go on")
    raise JobsFailed("\n".join(told), [job.submission_id for job in bad])


def how_it_failed(service: Service, job: JobView) -> str:
    """Tell which job did not succeed, where and why, with the end of its log."""
    lines = (service.detail(job.submission_id).logs or "").rstrip().splitlines()[-LAST_LOG_LINES:]
    return _what_failed(job) + _indented(map(visible, lines) if lines else ["(no log was kept)"])


def _what_failed(job: JobView) -> str:
    name = job.metadata.get("job_name") or job.own_name
    where = f"on {job.cluster!r}" if job.cluster else "before it got a cluster"
    named = f"{job.submission_id} ({name})" if name else job.submission_id
    return visible(f"job {named} {job.state.value} {where}: {job.message}")


def _indented(lines: Iterable[str]) -> str:
    return "".join(f"\n    | {line}" for line in lines)
