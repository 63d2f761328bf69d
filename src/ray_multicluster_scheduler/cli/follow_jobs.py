"""Waiting for jobs: one with its log, many with a progress bar; and what Ctrl-C does meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from ray_multicluster_scheduler.asyncio_tools import together
from ray_multicluster_scheduler.cli import lazy_imports
from ray_multicluster_scheduler.cli.console import say, stderr_console, write_line
from ray_multicluster_scheduler.cli.leader_status import leader_name
from ray_multicluster_scheduler.cli.signals import INTERRUPTED, Terminated
from ray_multicluster_scheduler.cli.views.job_progress import JobDisplay, job_display, where_it_is
from ray_multicluster_scheduler.cli.views.reasons import WaitingReason, upper_first
from ray_multicluster_scheduler.cli.views.render import STATE_STYLES, age
from ray_multicluster_scheduler.client.progress import Show, Stated, progress_display, summary
from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.errors import SchedulerError, WaitTimeout
from ray_multicluster_scheduler.model.states import JobState

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.current import Handle
    from ray_multicluster_scheduler.service.views import JobView

#: Ray gives a program 3 s after SIGTERM; a loaded head needs a few more to notice.
STOP_TIMEOUT_S = 30.0
TICK_S = 1.0
#: How often progress is told at most where there is no terminal: the log of a build keeps every line.
TELL_EVERY_S = 10.0
#: Of how many failed jobs the end of the log is shown.
SHOWN_FAILURES = 3
#: Of how many more the id is told.
NAMED_FAILURES = 20


def follow(scheduler: Handle, submission_id: str) -> JobView:
    """Stream a job's log and show its state until it has ended; return it as it is then."""
    with job_display() as display:
        try:
            asyncio.run(_show(scheduler, submission_id, display))
        except CancelledError:
            raise SchedulerError("this program was stopped; the job goes on") from None
    return scheduler.service.get_many([submission_id])[submission_id]


def follow_all(scheduler: Handle, submission_ids: Sequence[str]) -> list[JobView]:
    """Stream the logs of several jobs, each line after the job's id; return the jobs when all have ended."""

    async def show(submission_id: str) -> None:
        rest: list[str] = []
        async for piece in scheduler.service.tail_async(submission_id):
            first, *others = piece.split("\n")
            rest.append(first)
            for begun in others:
                write_line(f"{submission_id} | {''.join(rest)}")
                rest = [begun]
        if any(rest):
            write_line(f"{submission_id} | {''.join(rest)}")

    async def show_all() -> None:
        await together(map(show, submission_ids))

    try:
        asyncio.run(show_all())
    except CancelledError:
        raise SchedulerError("this program was stopped; the jobs go on") from None
    for _ in scheduler.service.changes(submission_ids, timeout_s=None, tick_s=TICK_S):
        pass
    return list(scheduler.service.get_many(submission_ids).values())


async def _show(scheduler: Handle, submission_id: str, display: JobDisplay) -> None:
    service, reason = scheduler.service, WaitingReason(scheduler)

    async def show_log() -> None:
        async for piece in service.tail_async(submission_id):
            display.log(piece)

    async def show_state() -> None:
        async with aclosing(service.changes_async([submission_id], timeout_s=None, tick_s=TICK_S)) as changes:
            async for jobs in changes:
                display.state(jobs[submission_id], reason.of(jobs[submission_id]))

    await together([show_log(), show_state()])


def watch_all(
    scheduler: Handle, submission_ids: Sequence[str], *, timeout_s: float | None = None
) -> Mapping[str, JobView]:
    """Show how far jobs are until all have ended; return them as they are then. May raise `WaitTimeout`."""
    jobs: Mapping[str, JobView] = {}
    reason = WaitingReason(scheduler)
    with _progress(len(submission_ids)) as show:
        for jobs in scheduler.service.changes(submission_ids, timeout_s=timeout_s, tick_s=TICK_S):
            show(jobs, reason.of_all(jobs.values()))
    return jobs


@contextmanager
def _progress(total: int) -> Iterator[Show]:
    """Show one bar on a terminal; elsewhere a line at first, at the end, and now and then between."""
    if stderr_console().is_terminal:
        with progress_display(total) as show:
            yield show
        return
    said, said_why, said_at, clock = "", "", 0.0, SystemClock()

    def tell(jobs: Mapping[str, Stated], why: str = "") -> None:
        nonlocal said, said_why, said_at
        ended, now = sum(job.final for job in jobs.values()), clock.monotonic()
        due = not said or ended == total or now - said_at >= TELL_EVERY_S or (why and not said_why)
        if due and (words := summary(jobs, why)) != said:
            said, said_why, said_at = words, why, now
            say(f"{ended}/{total} jobs: {words}")

    yield tell


def tell_end(job: JobView) -> None:
    """Say how one job has ended, after its log was shown."""
    words = Text.assemble((job.submission_id, "bold"), " ", (where_it_is(job), STATE_STYLES[job.state]))
    if job.state is JobState.SUCCEEDED:
        words.append(f" after {_took([job])}")
    else:
        words.append(f": {job.message}")
    say(words)
    exit_if_bad([job])


def tell_ends(scheduler: Handle, jobs: Sequence[JobView]) -> None:
    """Say how jobs have ended: how many where, which failed and why, and where to read on."""
    count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
    line = Text(f"{count} in {_took(jobs)}: ")
    parts = Counter((job.state, job.cluster) for job in jobs)
    for number, ((state, cluster), amount) in enumerate(sorted(parts.items(), key=str)):
        line.append(", " if number else "")
        line.append(f"{amount} {state.value}", style=STATE_STYLES[state])
        line.append(f" on {cluster}" if cluster else "")
    say(line)
    bad = [job for job in jobs if job.state is not JobState.SUCCEEDED]
    for job in bad[:SHOWN_FAILURES]:
        say(lazy_imports.how_it_failed(scheduler.service, job))
    if rest := bad[SHOWN_FAILURES:]:
        named = ", ".join(job.submission_id for job in rest[:NAMED_FAILURES])
        more = f" and {len(rest) - NAMED_FAILURES} more" if len(rest) > NAMED_FAILURES else ""
        say(f"Not succeeded either: {named}{more}.")
    _tell_where_to_read_on(jobs, bad)
    exit_if_bad(jobs)


def _tell_where_to_read_on(jobs: Sequence[JobView], bad: Sequence[JobView]) -> None:
    group = jobs[0].group
    if group is None or any(job.group != group for job in jobs):
        return
    logs = f"Logs: `raymc logs {group}`."
    say(f"{logs} To run again what did not succeed: `raymc retry {group}`." if bad else logs, style="dim")


def exit_if_bad(jobs: Sequence[JobView]) -> None:
    """End with exit code 1 unless all jobs have succeeded."""
    if any(job.state is not JobState.SUCCEEDED for job in jobs):
        raise typer.Exit(1)


def _took(jobs: Sequence[JobView]) -> str:
    """Write how long jobs took together, from the first that was accepted to the last that ended."""
    ends = [job.ended_at for job in jobs if job.ended_at is not None]
    return age(max(0.0, max(ends) - min(job.accepted_at for job in jobs))) if ends else "no time"


def stop_and_watch(scheduler: Handle, submission_ids: Sequence[str], *, reason: str) -> Mapping[str, JobView]:
    """Stop jobs wherever they are and wait until they have ended, or for a while; return them as they are."""
    scheduler.service.stop(submission_ids, reason=reason)
    scheduler.ensure_scheduled(at_once=True)
    jobs: Mapping[str, JobView] = {}
    try:
        with _progress(len(submission_ids)) as show:
            for jobs in scheduler.service.changes(submission_ids, timeout_s=STOP_TIMEOUT_S, tick_s=TICK_S):
                show(jobs)
    except WaitTimeout:
        say("Some jobs have not ended yet; the scheduler goes on with stopping them.", style="yellow")
    except KeyboardInterrupt:
        what = submission_ids[0] if len(submission_ids) == 1 else f"{len(submission_ids)} jobs"
        say(f"Interrupted: the request to stop {what} is recorded. {_who_stops(scheduler)}", style="yellow")
        raise typer.Exit(INTERRUPTED) from None
    return jobs


def _who_stops(scheduler: Handle) -> str:
    leader = scheduler.service.leader()
    if leader is None:
        return "It is carried out as soon as a scheduler runs."
    return f"{upper_first(leader_name(leader))} carries it out."


@contextmanager
def stopping_on_interrupt(scheduler: Handle, submission_ids: Sequence[str]) -> Iterator[None]:
    """Let Ctrl-C stop what is submitted under these ids from now on, and end with exit code 130.

    SIGTERM and SIGHUP end the command only: whoever closes a terminal or restarts a service still wants them.
    """
    since = SystemClock().now()
    try:
        yield
    except Terminated:
        if pending := _pending(scheduler, submission_ids, since):
            with suppress(OSError):  # the terminal may be gone
                it = pending[0] if len(pending) == 1 else f"{len(pending)} jobs"
                say(f"Terminated: {it} will go on; `raymc jobs` shows how far.", style="yellow")
        raise
    except KeyboardInterrupt:
        if pending := _pending(scheduler, submission_ids, since):
            what = pending[0] if len(pending) == 1 else f"{len(pending)} jobs"
            say(f"Interrupted: stopping {what} (Ctrl-C again does not wait for it).", style="yellow")
            ended = stop_and_watch(scheduler, pending, reason="stopped by Ctrl-C in the submitting command")
            say(summary(ended))
        raise typer.Exit(INTERRUPTED) from None


def _pending(scheduler: Handle, submission_ids: Sequence[str], since: float) -> list[str]:
    """Return the jobs that have not ended. An older job may have the requested id: it is not ours."""
    known = scheduler.service.get_many(submission_ids).values()
    return [job.submission_id for job in known if not job.final and job.accepted_at >= since]
