"""The pandas engine: one process on one machine, for small data and for comparison."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api import types

from ray_multicluster_scheduler.errors import InvalidRequest, PipelineFailed
from raymc_pipeline.files import find_input, find_output, read_table, write_table
from raymc_pipeline.operators import Kind, find_operator
from raymc_pipeline.plan import Plan, Step, check_columns, choose_columns
from raymc_pipeline.report import SHOWN_ROWS, RunReport, StepReport, first_rows, peak_rss_bytes, timed


def run_on_pandas(plan: Plan) -> RunReport:
    """Execute a plan in this process."""
    source = find_input(plan.source)
    target = find_output(plan.output) if plan.output else None
    frame, seconds = timed(lambda: read_table(source).to_pandas())
    check_columns(plan, _schema(frame))
    steps = [_step("read", seconds, frame)]
    for step in plan.steps:
        columns = choose_columns(plan, step, _schema(frame))
        frame, seconds = timed(lambda: _apply(step, frame, columns))  # noqa: B023 - called at once
        steps.append(_step(step.operator, seconds, frame, columns))
    if target is not None:
        _, seconds = timed(lambda: write_table(pa.Table.from_pandas(frame, preserve_index=False), target))
        steps.append(StepReport(name="write", seconds=seconds, rows=len(frame), bytes=None))
    shown = () if target is not None else first_rows(frame.head(SHOWN_ROWS).to_dict("records"))
    return RunReport(
        steps=tuple(steps), environment_s=None, peak_rss_bytes=peak_rss_bytes(), first_rows=shown
    )


def _apply(step: Step, frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    try:
        return find_operator(step.operator).on_pandas(frame, columns, step.params)
    except InvalidRequest:
        raise
    except (ValueError, TypeError) as problem:
        raise PipelineFailed(f"{step.operator} on {', '.join(columns)}: {problem}") from problem


def _schema(frame: pd.DataFrame) -> dict[str, Kind]:
    return {str(name): _kind(frame[name]) for name in frame.columns}


def _kind(column: pd.Series) -> Kind:
    if types.is_bool_dtype(column):
        return "any"
    if types.is_numeric_dtype(column):
        return "numeric"
    present = column.dropna()
    first = None if present.empty else present.iloc[0]
    if isinstance(first, (list, np.ndarray)):
        return "list"
    return "text" if isinstance(first, str) or types.is_string_dtype(column) else "any"


def _step(name: str, seconds: float, frame: pd.DataFrame, columns: Sequence[str] = ()) -> StepReport:
    size = int(frame.memory_usage(deep=True).sum())
    return StepReport(name=name, seconds=seconds, rows=len(frame), bytes=size, columns=tuple(columns))
