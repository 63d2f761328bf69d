"""Waiting for jobs: one with its log, many with a progress bar; and what Ctrl-C does meanwhile."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import aclosing, contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import typer
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.asyncio_tools import together
from ray_multicluster_scheduler.cli import lazy_imports
from ray_multicluster_scheduler.cli.console import INTERRUPTED, Terminated, say, stderr_console, write_line
from ray_multicluster_scheduler.cli.session import leader_name
from ray_multicluster_scheduler.client.display import STATE_STYLES, age, upper_first
from ray_multicluster_scheduler.client.waiting import Show, Stated, progress_display, summary
from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.errors import SchedulerError, WaitTimeout
from ray_multicluster_scheduler.model.decision import Cause
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.text import visible

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.current import Client
    from ray_multicluster_scheduler.service.views import Explanation, JobView


# Writes the log of a job: unchanged to a file or a pipe, without harmful escape codes to a terminal.


#: Colours, and clearing the rest of a line as progress bars do: these a log may use.
_ALLOWED = re.compile(r"\x1b\[[0-9;:]*m|\x1b\[[012]?K|[\n\t\r\b]|[\u061c\u200e\u200f]")
#: All else that a terminal would obey: window titles, the clipboard, movements, other character sets.
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]+[0-~]|\x1b[0-OQ-WYZ\\`-~]"
    r"|[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
#: A sequence whose end comes with the next piece.
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\x9c]*\x1b?|[ -/]*)?\Z")
#: What is longer has no end: it is shown instead.
_LONGEST_SEQUENCE = 4096
_RESET = "\x1b[0m"


class LogWriter:
    """Writes pieces of a log to stdout; `close` after the last one."""

    def __init__(self) -> None:
        self._filters = sys.stdout.isatty()
        self._held = ""
        self._coloured = False

    def write(self, piece: str) -> None:
        """Write a piece; a sequence that is cut off waits for its other half."""
        if self._filters:
            piece = self._filter(self._held + piece)
        sys.stdout.write(piece)
        sys.stdout.flush()

    def close(self) -> None:
        """Write what was held back, and end a colour that the log has left on."""
        rest = visible(self._held) + (_RESET if self._coloured else "")
        self._held, self._coloured = "", False
        if rest:
            sys.stdout.write(rest)
            sys.stdout.flush()

    def _filter(self, text: str) -> str:
        unfinished = _UNFINISHED.search(text, max(0, len(text) - _LONGEST_SEQUENCE))
        cut = len(text) if unfinished is None else unfinished.start()
        self._held = text[cut:]
        return _SEQUENCE.sub(self._harmless, text[:cut])

    def _harmless(self, found: re.Match[str]) -> str:
        sequence = found[0]
        if _ALLOWED.fullmatch(sequence):
            self._coloured |= sequence.endswith("m")
            return sequence
        return "" if len(sequence) > 1 else visible(sequence)


# What a person sees while one job is waited for: its log on stdout, a line about its state on stderr.


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


# Why a job waits, in one line, for a person who waits for it.


#: A reason is looked up when a job has waited this long, and then again as often: it costs a pass.
LOOK_EVERY_S = 2.0


class WaitingReason:
    """Looks up from time to time why a job is still queued."""

    def __init__(self, scheduler: Client) -> None:
        self._scheduler = scheduler
        self._clock = SystemClock()
        self._looked_at = self._clock.monotonic()
        self._said = ""

    def of(self, job: JobView) -> str:
        """Return the reason; empty for a job that starts or runs, or has only just begun to wait."""
        if job.state is not JobState.QUEUED:
            is_told = job.state not in {JobState.RUNNING, JobState.SUBMITTED} or job.setting_up
            return job.message if is_told else ""
        now = self._clock.monotonic()
        if now - self._looked_at >= LOOK_EVERY_S:
            self._said = why_it_waits(self._scheduler.service.explain(job.submission_id))
            self._looked_at = now
        return self._said

    def of_all(self, jobs: Collection[JobView]) -> str:
        """Return why the first of them waits, while none of them is on its way."""
        open_jobs = [job for job in jobs if not job.final]
        if not open_jobs or any(job.state is not JobState.QUEUED for job in open_jobs):
            return ""
        return self.of(open_jobs[0])


def why_it_waits(explained: Explanation) -> str:
    """Put what `explain` says of a queued job into one line."""
    decision = explained.decision
    if decision is None:
        return explained.why
    if decision.cluster is not None:
        return f"{decision.cluster} has room and takes it next"
    told = {name: each for name, each in decision.refusals.items() if each.cause is not Cause.EXCLUDED}
    only = "its only cluster " if len(told) == 1 < len(decision.refusals) else ""
    return "; ".join(f"{only}{name}: {each.sentence}" for name, each in (told or decision.refusals).items())


#: Ray gives a program 3 s after SIGTERM; a loaded head needs a few more to notice.
STOP_TIMEOUT_S = 30.0
TICK_S = 1.0
#: How often progress is told at most where there is no terminal: the log of a build keeps every line.
TELL_EVERY_S = 10.0
#: Of how many failed jobs the end of the log is shown.
SHOWN_FAILURES = 3
#: Of how many more the id is told.
NAMED_FAILURES = 20


def follow(scheduler: Client, submission_id: str) -> JobView:
    """Stream a job's log and show its state until it has ended; return it as it is then."""
    with job_display() as display:
        try:
            asyncio.run(_show(scheduler, submission_id, display))
        except CancelledError:
            raise SchedulerError("this program was stopped; the job goes on") from None
    return scheduler.service.get_many([submission_id])[submission_id]


def follow_all(scheduler: Client, submission_ids: Sequence[str]) -> list[JobView]:
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


async def _show(scheduler: Client, submission_id: str, display: JobDisplay) -> None:
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
    scheduler: Client, submission_ids: Sequence[str], *, timeout_s: float | None = None
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


def tell_ends(scheduler: Client, jobs: Sequence[JobView]) -> None:
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


def stop_and_watch(scheduler: Client, submission_ids: Sequence[str], *, reason: str) -> Mapping[str, JobView]:
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


def _who_stops(scheduler: Client) -> str:
    leader = scheduler.service.leader()
    if leader is None:
        return "It is carried out as soon as a scheduler runs."
    return f"{upper_first(leader_name(leader))} carries it out."


@contextmanager
def stopping_on_interrupt(scheduler: Client, submission_ids: Sequence[str]) -> Iterator[None]:
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


def _pending(scheduler: Client, submission_ids: Sequence[str], since: float) -> list[str]:
    """Return the jobs that have not ended. An older job may have the requested id: it is not ours."""
    known = scheduler.service.get_many(submission_ids).values()
    return [job.submission_id for job in known if not job.final and job.accepted_at >= since]
