"""How jobs, decisions, numbers and times look: in terminals, notebooks, pipes, and without Unicode."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.cluster_health.diagnosis import Verdict
from ray_multicluster_scheduler.core.placement.scoring import part_names
from ray_multicluster_scheduler.model.job import own_name
from ray_multicluster_scheduler.model.resources import GIB
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.text import visible

if TYPE_CHECKING:
    from ray_multicluster_scheduler.model.decision import Score
    from ray_multicluster_scheduler.service.views import DecisionView, Explanation, JobView

UNKNOWN = Text("unknown", style="dim")
NONE = Text("-", style="dim")
_UNITS_S = (("d", 86400), ("h", 3600), ("min", 60))

STATE_STYLES = {
    JobState.QUEUED: "yellow",
    JobState.PLACED: "cyan",
    JobState.SUBMITTED: "cyan",
    JobState.RUNNING: "blue",
    JobState.UNREACHABLE: "bold red",
    JobState.LOST: "bold red",
    JobState.SUCCEEDED: "green",
    JobState.FAILED: "red",
    JobState.STOPPED: "magenta",
}
_SIGNS = {
    Verdict.OK: ("✓", "OK", "green"),
    Verdict.PROBLEM: ("✗", "XX", "red"),
    Verdict.NOTE: ("–", "--", "yellow"),
    Verdict.SKIPPED: ("–", "--", "dim"),
}


def state_text(state: JobState) -> Text:
    """Return the name of a state in its colour."""
    return Text(state.value, style=STATE_STYLES[state])


def plain_signs(console: Console) -> bool:
    """Tell whether the output can show only ASCII."""
    return console.options.ascii_only


def sign(verdict: Verdict, *, plain: bool) -> Text:
    """Return ✓, ✗ or – in its colour."""
    fancy, ascii_only, colour = _SIGNS[verdict]
    return Text(ascii_only if plain else fancy, style=colour)


def bar(share: float, *, width: int, plain: bool, also: float = 0.0) -> Text:
    """Draw how full something is, from 0 to 1, and how full it is with what is `also` taken."""
    full, half, empty = ("#", "=", "-") if plain else ("█", "▒", "░")
    filled, taken = _parts_of(share, width), _parts_of(max(share, also), width)
    most = max(share, also)
    colour = "green" if most < 0.7 else "yellow" if most < 0.9 else "red"
    return Text.assemble(
        (full * filled, colour), (half * (taken - filled), colour), (empty * (width - taken), "dim")
    )


def _parts_of(share: float, width: int) -> int:
    share = min(1.0, max(0.0, share))
    return max(1, round(share * width)) if share > 0 else 0  # little is not nothing


def number(value: float) -> str:
    """Write a number the short way: 4, 0.5, 12.3."""
    return f"{value:.1f}".removesuffix(".0")


def used_of(used: float | None, total: float, *, is_bytes: bool) -> str:
    """Write `2/4` or `3.2/16 GiB`; without a use, `of 4`."""
    unit, suffix = (GIB, " GiB") if is_bytes else (1, "")
    if is_bytes and total >= 1024 * GIB:
        unit, suffix = 1024 * GIB, " TiB"
    before = "of " if used is None else f"{number(used / unit)}/"
    return f"{before}{number(total / unit)}{suffix}"


def amount(value: float, *, is_bytes: bool) -> str:
    """Write `2` or `3.2 GiB`."""
    return f"{number(value / GIB)} GiB" if is_bytes else number(value)


def duration(seconds: float) -> str:
    """Write a short time: 24 ms, 1.2 s."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{number(seconds)} s"


def age(seconds: float) -> str:
    """Write how long ago something was: 12 s, 3 min, 5 h, 2 d."""
    for unit, length in _UNITS_S:
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"


def ago(at: float | None, now: float) -> str:
    """Write when something was, as people say it: `3 min ago`; nothing where it never was."""
    return "-" if at is None else f"{age(max(0.0, now - at))} ago"


# How times look: as people say them in a terminal, as programs compare them in a pipe.


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Writes times relative to `now` for people, and in ISO 8601 (UTC) and seconds for programs."""

    now: float
    for_programs: bool

    @classmethod
    def of(cls, console: Console) -> Times:
        """Return how times look on this console at this moment."""
        return cls(now=SystemClock().now(), for_programs=not console.is_terminal)

    def when(self, at: float | None) -> str:
        """Write `3 min ago` or `2026-01-31T08:00:00Z`; `-` where it never was."""
        return iso(at) if at is not None and self.for_programs else ago(at, self.now)

    def since(self, at: float) -> str:
        """Write `for 3 min` or `since 2026-01-31T08:00:00Z`."""
        return f"since {iso(at)}" if self.for_programs else f"for {age(max(0.0, self.now - at))}"

    def ran(self, started: float | None, ended: float | None) -> str:
        """Write how long a program runs or ran: `12 s` or `12.3s`; `-` where that is not known."""
        if started is None:
            return "-"
        seconds = max(0.0, (self.now if ended is None else ended) - started)
        if self.for_programs:
            return f"{seconds:.1f}s"
        return "<1 s" if seconds < 1 else age(seconds)


def iso(at: float) -> str:
    """Write a moment in UTC, to the second."""
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


# Decisions: for each cluster the parts of its score, or why it was refused.


_PARTS = part_names()
_LEGEND = (
    "The highest score wins, however small it is: fit x weight x health + tags + warm + gpu. "
    "fit: how well the job fits into what is free there; warm: this environment was set up there before."
)


def decision_view(decision: DecisionView, *, plain: bool) -> Iterator[RenderableType]:
    """Yield the table of candidates, the best first, and a line for each refusal."""
    if decision.scores:
        yield _score_table(decision.scores, decision.cluster)
        yield Text(_LEGEND, style="dim")
    for name, refusal in sorted(decision.refusals.items()):
        yield Text.assemble(sign(Verdict.PROBLEM, plain=plain), (f" {name}: ", "bold"), refusal.sentence)


def _score_table(scores: Mapping[str, Score], chosen: str | None) -> Table:
    """Show how each total comes about, fit × weight × health + the rest, and which go first."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("cluster", overflow="fold")
    for part in _PARTS:
        table.add_column(part.replace("_", " "), justify="right")
    table.add_column("score", justify="right")
    some_first = any(score.prefer for score in scores.values())
    if some_first:
        table.add_column("prefer")
    for name, score in sorted(scores.items(), key=_rank):
        style = "bold green" if name == chosen else ""
        numbers = [f"{score.parts.get(part, 0.0):.2f}" for part in _PARTS]
        first = ["first" if score.prefer else ""] if some_first else []
        table.add_row(Text(name, style=style), *numbers, Text(f"{score.total:.2f}", style=style), *first)
    return table


def _rank(candidate: tuple[str, Score]) -> tuple[bool, float, str]:
    name, score = candidate
    return not score.prefer, -score.total, name


def explanation(story: Explanation, *, plain: bool) -> Iterator[RenderableType]:
    """Yield why a job is where it is, and what would let it start."""
    decision = story.decision
    waits = story.state is JobState.QUEUED
    if decision is None:
        yield Text(f"{upper_first(story.why)}." if waits else "It never got a cluster.")
    else:
        if decision.cluster is not None:
            verb = "Would be placed" if waits else "Placed"
            yield Text.assemble(f"{verb} on ", (decision.cluster, "bold"), f": {decision.sentence}.")
        yield from decision_view(decision, plain=plain)
    if not waits:
        return
    if story.position is not None:
        yield Text(f"Place {story.position} in the queue.")
    if decision is not None and decision.reserved_on:
        yield Text(f"It has waited long: room is being kept for it on {decision.reserved_on}.")
    if story.suggestions:
        yield Text("What would let it start now:")
        yield from (Text(f"  - {sentence}") for sentence in story.suggestions)


def upper_first(text: str) -> str:
    """Begin a sentence with a capital, and change nothing else."""
    return text[:1].upper() + text[1:]


# Jobs: one in a line, several as a table.


#: Rows of a table that is shown while somebody waits.
ROWS = 20
#: Those that people look for come first.
_ORDER = {state: place for place, state in enumerate((
    JobState.FAILED, JobState.LOST, JobState.UNREACHABLE, JobState.STOPPED, JobState.RUNNING,
    JobState.SUBMITTED, JobState.PLACED, JobState.QUEUED, JobState.SUCCEEDED,
))}  # fmt: skip


#: Lines of the log, and times, that are shown of one job.
CARD_LOG_LINES = 5
_TIMES = {"submitted": "accepted_at", "started": "started_at", "ended": "ended_at"}


def job_line(job: JobView, now: float) -> Text:
    """Write where a job is: `sub_2f1c RUNNING on mac for 3 min`."""
    where = f" on {job.cluster}" if job.cluster else ""
    return Text.assemble(
        (job.submission_id, "bold"), " ", state_text(job.state), f"{where} {_for_how_long(job, now)}"
    )


def _for_how_long(job: JobView, now: float) -> str:
    if not job.final:
        return f"for {age(max(0.0, now - job.changed_at))}"
    if job.started_at is None or job.ended_at is None:
        return ago(job.ended_at, now)
    return f"after {age(max(0.0, job.ended_at - job.started_at))}"


def job_card(job: Mapping[str, Any], now: float) -> Group:
    """Show the most important of a job: where it is, why, when, and the end of its log.

    A program may have changed the mapping: what is missing is left out.
    """
    known = {state.value: state for state in JobState}
    state = str(job.get("state"))
    where = f" on {job['cluster']}" if job.get("cluster") else ""
    head = Text.assemble(
        (str(job.get("submission_id")), "bold"),
        " ",
        state_text(known[state]) if state in known else state,
        where,
    )
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim")
    rows.add_column(overflow="fold")
    told = {
        "name": own_name(str(job.get("job_id"))),
        "command": job.get("entrypoint"),
        "why": job.get("message"),
        "exit code": job.get("exit_code"),
        "user": job.get("user"),
        **{word: _told_time(job.get(key), now) for word, key in _TIMES.items()},
        "attempts": job.get("attempt"),
        "log": "\n".join(str(job.get("logs") or "").rstrip().splitlines()[-CARD_LOG_LINES:]),
    }
    for word, value in told.items():
        if value is not None and value != "":
            rows.add_row(f"  {word}", "\n".join(map(visible, str(value).splitlines())))
    return Group(head, rows)


def _told_time(at: float | None, now: float) -> str | None:
    if at is None:
        return None
    local = datetime.fromtimestamp(at, timezone.utc).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S} ({ago(at, now)})"


def jobs_table(jobs: Sequence[JobView], now: float, *, rows: int = ROWS) -> Group:
    """Return how many jobs are in which state, and those that matter most as rows."""
    counts = Counter(job.state for job in jobs)
    head = Text(f"{len(jobs)} jobs: " if len(jobs) != 1 else "1 job: ")
    head.append(
        Text(", ").join(
            Text.assemble(f"{counts[state]} ", state_text(state)) for state in _ORDER if counts[state]
        )
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("job", "state", "cluster", "time", ""):
        table.add_column(title, overflow="fold" if title == "job" else "ellipsis", no_wrap=title != "job")
    shown = sorted(jobs, key=lambda job: _ORDER[job.state])[:rows]
    for job in shown:
        told = "" if job.state in {JobState.SUCCEEDED, JobState.RUNNING} else visible(job.message)
        name = job.own_name or job.submission_id
        table.add_row(
            name, state_text(job.state), job.cluster or "-", _for_how_long(job, now), Text(told, style="dim")
        )
    parts: list[RenderableType] = [head]
    if shown:
        parts.append(table)
    if len(jobs) > len(shown):
        parts.append(Text(f"and {len(jobs) - len(shown)} more", style="dim"))
    return Group(*parts)


# The same where no console is at hand.


#: A notebook's cell is about as wide.
NOTEBOOK_WIDTH = 110


def as_text(part: RenderableType, *, width: int = NOTEBOOK_WIDTH) -> str:
    """Return what a console of this width would show, without colours."""
    console = Console(file=io.StringIO(), width=width, color_system=None, force_jupyter=False)
    with console.capture() as capture:
        console.print(part)
    return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))


def as_html(part: RenderableType) -> str:
    """Return the same with its colours, for a notebook."""
    console = Console(file=io.StringIO(), width=NOTEBOOK_WIDTH, record=True, force_jupyter=False)
    console.print(part)
    style = "white-space:pre;overflow-x:auto;line-height:normal;font-family:Menlo,Consolas,monospace"
    return console.export_html(inline_styles=True, code_format=f'<pre style="{style}">{{code}}</pre>')
