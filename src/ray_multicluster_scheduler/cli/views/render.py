"""How numbers, bars, states and verdicts look, in narrow terminals, pipes and without Unicode as well."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from ray_multicluster_scheduler.cluster_health.diagnosis import Verdict
from ray_multicluster_scheduler.model.resources import GIB
from ray_multicluster_scheduler.model.states import JobState

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
