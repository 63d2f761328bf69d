"""Run all benchmarks and write docs/performance.md: `python -m benchmarks [--full] [--only NAME ...]`."""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import pkgutil
import platform
import subprocess
import sys
from pathlib import Path

import benchmarks
from benchmarks.measure import Line, Report
from benchmarks.plot import as_svg

DOCS = Path(__file__).parents[1] / "docs"
#: What the page says about each benchmark stays in the page; between these marks it is written anew.
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def names() -> list[str]:
    """Return the benchmarks: the modules that have something to measure."""
    modules = [each.name for each in pkgutil.iter_modules(benchmarks.__path__) if each.name != "__main__"]
    return [name for name in modules if hasattr(importlib.import_module(f"benchmarks.{name}"), "measure")]


def run(name: str, *options: str) -> Report:
    """Run one benchmark in a process of its own, so that none inherits the memory of another."""
    command = [sys.executable, "-m", f"benchmarks.{name}", "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    lines = [Line(**{key: value for key, value in line.items() if key != "met"}) for line in found["lines"]]
    return Report(name=found["name"], lines=tuple(lines), notes=tuple(found["notes"]), load=found["load"])


def page(reports: list[Report]) -> str:
    """Return the measured part of docs/performance.md."""
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    machine = f"{os.cpu_count()} cores, {system}"
    today = datetime.datetime.now(tz=datetime.timezone.utc).date()
    parts = [f"Measured on {today}: {machine}.", "![Distance from each target](images/performance.svg)"]
    for report in reports:
        parts += [f"### {report.name}", f"Load average {report.load:.1f}.", _table(report), *report.notes]
    return "\n\n".join(parts)


def _table(report: Report) -> str:
    rows = ["| what | median | spread | target | |", "|---|---:|---|---|---|"]
    for line in report.lines:
        spread = "" if line.low is None else f"{line.low:.3g} – {line.high:.3g}"
        least = "" if line.at_least is None else f"≥ {line.at_least:g}"
        target = f"≤ {line.at_most:g}" if line.at_most is not None else least
        verdict = {None: "", True: "met", False: "**missed**"}[line.met]
        rows.append(f"| {line.what} | {line.value:.4g} {line.unit} | {spread} | {target} | {verdict} |")
    return "\n".join(rows)


def main() -> None:
    """Run all benchmarks, or the named ones, and write the page and its plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="measure the sizes that the targets speak of")
    parser.add_argument("--only", nargs="+", default=names(), help="run these only, and write nothing")
    asked = parser.parse_args()
    reports = []
    for name in asked.only:
        reports.append(run(name, *(["--full"] if asked.full else [])))
        print(_table(reports[-1]), flush=True)
    if asked.only == names():
        write(reports)


def write(reports: list[Report]) -> None:
    """Put the results into the page, and draw them."""
    path = DOCS / "performance.md"
    before, _, rest = path.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{page(reports)}\n\n{END}{after}")
    (DOCS / "images" / "performance.svg").write_text(as_svg(reports))


if __name__ == "__main__":
    main()
