"""Reports of pipelines: time, rows and bytes of each step, for tables, programs and plots."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

T = TypeVar("T")

#: Rows to show of a result that is not written.
SHOWN_ROWS = 5
LONGEST_VALUE = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One step: reading, an operator, or writing."""

    name: str
    seconds: float
    rows: int
    #: Size of its result in memory; None for writing.
    bytes: int | None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """One run of a pipeline."""

    steps: tuple[StepReport, ...]
    #: Seconds until the first task ran in its environment; None for an engine without one.
    environment_s: float | None
    #: Peak memory of the driver process; the workers of a cluster are not included.
    peak_rss_bytes: int
    #: The first rows of a result that is not written, as text: the names of the columns, then the values.
    first_rows: tuple[tuple[str, ...], ...] = ()

    @property
    def seconds(self) -> float:
        """All steps together, without the environment."""
        return sum(step.seconds for step in self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All runs. The first one may include the installation of the environment."""

    engine: str
    source: str
    output: str | None
    runs: tuple[RunReport, ...]

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return the report for programs; without indent on one line."""
        runs = [{**asdict(run), "seconds": run.seconds} for run in self.runs]
        return json.dumps({**asdict(self), "runs": runs}, indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Read what `to_json` wrote."""
        fields = json.loads(text)
        runs = tuple(
            RunReport(
                steps=tuple(
                    StepReport(**{**step, "columns": tuple(step["columns"])}) for step in run["steps"]
                ),
                environment_s=run["environment_s"],
                peak_rss_bytes=run["peak_rss_bytes"],
                first_rows=tuple(tuple(row) for row in run.get("first_rows", ())),
            )
            for run in fields.pop("runs")
        )
        return cls(**fields, runs=runs)


def first_rows(rows: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], ...]:
    """Return rows as text for display: the names of the columns, then one line of short values per row."""
    if not rows:
        return ()
    names = tuple(map(str, rows[0]))
    return names, *(tuple(_short(row[name]) for name in rows[0]) for row in rows)


def _short(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Call a function and return its result and the seconds it took."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def peak_rss_bytes() -> int:
    """Return the peak memory of this process."""
    import resource  # noqa: PLC0415 - not on Windows, where the rest of this package runs

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def plot(report: Report, path: str) -> None:
    """Draw the seconds of each step of each run, with the environment first."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow, and only needed for plots

    figure = Figure(figsize=(8, 1.5 + 0.6 * len(report.runs)), layout="constrained")
    axes: Any = figure.subplots()
    colours: dict[str, str] = {}
    for number, run in enumerate(report.runs, start=1):
        left = 0.0
        parts = [
            ("environment", run.environment_s or 0.0),
            *((step.name, step.seconds) for step in run.steps),
        ]
        for name, seconds in parts:
            is_labelled = name in colours
            colour = colours.setdefault(name, f"C{len(colours)}")
            axes.barh(f"run {number}", seconds, left=left, color=colour, label=None if is_labelled else name)
            left += seconds
    axes.set_xlabel("seconds")
    axes.set_title(f"{report.engine}: {report.source}")
    axes.invert_yaxis()
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    figure.savefig(path)
