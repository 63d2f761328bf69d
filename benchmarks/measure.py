"""What all benchmarks share: rounds in turns, ratios with their spread, one shape of report.

A benchmark is a module with `measure(size) -> Report`. `python -m benchmarks.NAME [--full] [--json]` runs
one of them; `python -m benchmarks` runs all and writes `docs/performance.md`, with `--only NAME --record` the
part of one of them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path


class CannotMeasure(Exception):
    """Something that a benchmark needs is not there; the message says what, and how to get it."""


class Size(str, Enum):
    """How much to measure: does it run at all, a minute, or the sizes that the targets speak of."""

    SMOKE = "smoke"
    QUICK = "quick"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One measured number: the median, and the least and the most of all rounds."""

    what: str
    value: float
    unit: str = ""
    low: float | None = None
    high: float | None = None
    at_most: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool | None:
        """Tell whether the target was met; None: there is none."""
        if self.at_most is None and self.at_least is None:
            return None
        return (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )


def present_commit() -> str:
    """Return the commit of this clone, with a plus sign if files have changed since; empty without git."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one benchmark found, and how busy the machine was meanwhile."""

    name: str
    lines: tuple[Line, ...]
    #: Sentences for the reader: what the sides are, what was left out and why.
    notes: tuple[str, ...] = ()
    #: Average number of runnable processes during the last minute, at the end of the run.
    load: float = field(default_factory=lambda: os.getloadavg()[0])
    #: What was measured; empty where that is not known.
    commit: str = field(default_factory=present_commit)


def in_turns(
    sides: Mapping[str, Callable[[], float]], *, rounds: int, pause_s: float = 0.0
) -> dict[str, list[float]]:
    """Measure every side once per round, so that a busy moment hits all of them; who begins alternates.

    The pause before each side is for what the one before it leaves behind.
    """
    results: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        names = list(sides) if number % 2 == 0 else list(reversed(sides))
        for name in names:
            time.sleep(pause_s)
            results[name].append(sides[name]())
    return results


def ratio(what: str, ours: Sequence[float], theirs: Sequence[float], **target: float) -> Line:
    """Return ours / theirs, round by round: the median with its spread."""
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    return summary(what, ratios, unit="×", **target)


def summary(what: str, values: Sequence[float], *, unit: str, **target: float) -> Line:
    """Return the median of all rounds with its spread."""
    return Line(
        what=what, value=statistics.median(values), unit=unit, low=min(values), high=max(values), **target
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that `percent` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def show(report: Report) -> str:
    """Write a report for a terminal."""
    rows = [f"{report.name} (load {report.load:.1f}, commit {report.commit or 'unknown'})"]
    for line in report.lines:
        spread = "" if line.low is None else f"  [{line.low:.3g} .. {line.high:.3g}]"
        verdict = {None: "", True: "  ok", False: "  MISSED"}[line.met]
        rows.append(f"  {line.what:<62} {line.value:>10.4g} {line.unit}{spread}{target_of(line)}{verdict}")
    return "\n".join([*rows, *(f"  {note}" for note in report.notes)])


def target_of(line: Line) -> str:
    """Write a line's target, empty without one."""
    least = "" if line.at_least is None else f"  ≥ {line.at_least:g}"
    most = "" if line.at_most is None else f"  ≤ {line.at_most:g}"
    return least + most


def main(measure: Callable[[Size], Report]) -> None:
    """Run one benchmark from the command line."""
    parser = argparse.ArgumentParser(description=measure.__doc__)
    parser.add_argument("--full", action="store_true", help="measure the sizes that the targets speak of")
    parser.add_argument("--smoke", action="store_true", help="only see whether it runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args()
    # Ray heads and folders go with their `with`, which SIGTERM alone would not leave.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        report = measure(Size.FULL if asked.full else Size.SMOKE if asked.smoke else Size.QUICK)
    except CannotMeasure as problem:
        sys.exit(f"not measured: {problem}")
    print(json.dumps(as_json(report)) if asked.json else show(report))


def as_json(report: Report) -> dict[str, object]:
    """Return a report as plain values, with the verdicts."""
    lines = [{**asdict(line), "met": line.met} for line in report.lines]
    return {**asdict(report), "lines": lines}
