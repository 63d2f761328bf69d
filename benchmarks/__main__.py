"""Run all benchmarks and write docs/performance.md: `python -m benchmarks [--full] [--only NAME ...]`."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import subprocess
import sys

import benchmarks
from benchmarks.measure import Line, Report
from benchmarks.page import record, table


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
    return Report(**{**found, "lines": tuple(lines), "notes": tuple(found["notes"])})


def main() -> None:
    """Run all benchmarks, or the named ones, and write the page and its picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="measure the sizes that the targets speak of")
    parser.add_argument(
        "--only", nargs="*", help="run these only, and write nothing (with --record: no others)"
    )
    parser.add_argument(
        "--record", action="store_true", help="with --only: put these results into the page, draw all anew"
    )
    asked = parser.parse_args()
    reports, failed = [], []
    for name in names() if asked.only is None else asked.only:
        try:
            reports.append(run(name, *(["--full"] if asked.full else [])))
        except subprocess.CalledProcessError:  # it has said why; the others are measured all the same
            failed.append(name)
        else:
            print(table(reports[-1]), flush=True)
    if asked.only is None or asked.record:
        record(reports)
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


if __name__ == "__main__":
    main()
