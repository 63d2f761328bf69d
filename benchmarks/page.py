"""The record of what was measured last is docs/performance.md; the picture of all targets is drawn of it."""

from __future__ import annotations

import datetime
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Line, Report
from benchmarks.plot import as_svg

DOCS = Path(__file__).parents[1] / "docs"
PAGE, PICTURE = DOCS / "performance.md", DOCS / "images" / "performance.svg"
#: What the page says about each benchmark stays in the page; between these marks it is written anew.
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
_LOAD, _COMMIT = "Load average ", ", commit "
_HEAD = ["| what | median | spread | target | |", "|---|---:|---|---|---|"]


def record(reports: Sequence[Report]) -> None:
    """Put results in the place of those of the same benchmarks, and draw the picture of all."""
    before, measured, after = _parts(PAGE.read_text())
    introduction = _introduction() if reports else measured.partition("### ")[0].strip()
    found = {each.name: each for each in (*_reports(measured), *reports)}
    body = "\n\n".join([introduction, *map(_section, found.values())])
    PAGE.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{after}")
    PICTURE.write_text(as_svg(recorded()))  # from the rounded numbers of the page: a test compares both


def recorded() -> list[Report]:
    """Return all that the page has."""
    return _reports(_parts(PAGE.read_text())[1])


def table(report: Report) -> str:
    """Return the results as the page shows them."""
    return "\n".join([*_HEAD, *map(_row, report.lines)])


def _parts(page: str) -> tuple[str, str, str]:
    before, _, rest = page.partition(BEGIN)
    measured, _, after = rest.partition(END)
    return before, measured, after


def _introduction() -> str:
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    today = datetime.datetime.now(tz=datetime.timezone.utc).date()
    return (
        f"Measured on {today}: {os.cpu_count()} cores, {system}.\n\n"
        f"![Distance from each target](images/{PICTURE.name})"
    )


def _section(report: Report) -> str:
    commit = f"{_COMMIT}{report.commit}" if report.commit else ""
    return "\n\n".join(
        [f"### {report.name}", f"{_LOAD}{report.load:.1f}{commit}.", table(report), *report.notes]
    )


def _row(line: Line) -> str:
    spread = "" if line.low is None else f"{line.low:.3g} – {line.high:.3g}"
    least = "" if line.at_least is None else f"≥ {line.at_least:g}"
    target = f"≤ {line.at_most:g}" if line.at_most is not None else least
    verdict = {None: "", True: "met", False: "**missed**"}[line.met]
    return f"| {line.what} | {line.value:.4g} {line.unit} | {spread} | {target} | {verdict} |"


def _reports(measured: str) -> list[Report]:
    return [_report(section) for section in measured.split("### ")[1:]]


def _report(section: str) -> Report:
    name, run, rows, *notes = (part.strip() for part in re.split(r"\n{2,}", section.strip()))
    load, _, commit = run.removeprefix(_LOAD).rstrip(".").partition(_COMMIT)
    return Report(
        name=name,
        load=float(load),
        commit=commit,
        lines=tuple(_line(row) for row in rows.splitlines()[len(_HEAD) :]),
        notes=tuple(notes),
    )


def _line(row: str) -> Line:
    what, value, spread, target, _ = (cell.strip() for cell in row.strip("|").split("|"))
    number, _, unit = value.partition(" ")
    low, _, high = spread.partition(" – ")
    sign, _, bound = target.partition(" ")
    return Line(
        what=what,
        value=float(number),
        unit=unit,
        low=float(low) if spread else None,
        high=float(high) if spread else None,
        at_most=float(bound) if sign == "≤" else None,
        at_least=float(bound) if sign == "≥" else None,
    )
