"""The Ray engine: Ray Data on the cluster that this process is connected to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import ray
from ray.data import DataContext
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ray_multicluster_scheduler.errors import InvalidRequest, PipelineFailed
from raymc_pipeline.files import Location, find_input, find_output
from raymc_pipeline.operators import Kind, find_operator
from raymc_pipeline.plan import Plan, Step, check_columns, choose_columns
from raymc_pipeline.report import SHOWN_ROWS, RunReport, StepReport, first_rows, peak_rss_bytes, timed


def run_on_ray(plan: Plan, *, environment_s: float | None = None) -> RunReport:
    """Execute a plan on the connected cluster; `environment_s` was measured while connecting.

    The result of each step is kept until the next one is done, so that nothing is computed twice and each
    step is timed on its own. Ray spills what does not fit into the object store.
    """
    DataContext.get_current().execution_options.preserve_order = True  # as the pandas engine does
    source = find_input(plan.source)
    target = find_output(plan.output) if plan.output else None
    _check_visible(source, "input")
    dataset, seconds = timed(lambda: _guarded("reading", lambda: _read(source).materialize()))
    check_columns(plan, _schema(dataset))
    steps = [_step("read", seconds, dataset)]
    for step in plan.steps:
        columns = choose_columns(plan, step, _schema(dataset))
        dataset, seconds = timed(lambda: _apply(step, dataset, columns))  # noqa: B023 - called at once
        steps.append(_step(step.operator, seconds, dataset, columns))
    if target is not None:
        _, seconds = timed(lambda: _guarded("writing", lambda: _write(dataset, target)))
        steps.append(StepReport(name="write", seconds=seconds, rows=dataset.count(), bytes=None))
    shown = () if target is not None else first_rows(dataset.take(SHOWN_ROWS))
    return RunReport(
        steps=tuple(steps), environment_s=environment_s, peak_rss_bytes=peak_rss_bytes(), first_rows=shown
    )


def _read(source: Location) -> Any:
    read = getattr(ray.data, f"read_{source.format}")
    return read(source.path, filesystem=source.filesystem)


def _write(dataset: Any, target: Location) -> None:
    """Write a directory of files, one or more per node."""
    write = dataset.write_parquet if target.format == "parquet" else dataset.write_csv
    write(target.path, filesystem=target.filesystem)


def _apply(step: Step, dataset: Any, columns: Sequence[str]) -> Any:
    operator = find_operator(step.operator)
    what = f"{step.operator} on {', '.join(columns)}"
    preprocessor = operator.on_ray(columns, step.params)
    return _guarded(what, lambda: preprocessor.fit_transform(dataset).materialize())


def _guarded(what: str, work: Any) -> Any:
    """Turn errors of Ray Data into one message; its own log has the details."""
    try:
        return work()
    except InvalidRequest:
        raise
    except (RayError, ValueError, TypeError, KeyError, OSError) as problem:
        raise PipelineFailed(f"{what}: {_reason(problem)}") from problem


def _reason(problem: BaseException) -> str:
    """Return the last line with text: Ray puts the cause after the traceback of the worker."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return lines[-1] if lines else type(problem).__name__


def _schema(dataset: Any) -> dict[str, Kind]:
    schema = dataset.schema()
    if schema is None:
        raise InvalidRequest("the input has no rows")
    return {name: _kind(kind) for name, kind in zip(schema.names, schema.types, strict=True)}


def _kind(kind: Any) -> Kind:
    if not isinstance(kind, pa.DataType):
        return "list"  # Python objects: our operators return such columns only for lists
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "numeric"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        return "text"
    nested = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return "list" if nested or isinstance(kind, pa.BaseExtensionType) else "any"


def _step(name: str, seconds: float, dataset: Any, columns: Sequence[str] = ()) -> StepReport:
    return StepReport(
        name=name, seconds=seconds, rows=dataset.count(), bytes=dataset.size_bytes(), columns=tuple(columns)
    )


def _check_visible(where: Location, what: str) -> None:
    """Refuse a local path that does not exist on every node: workers there would fail one by one."""
    if not where.local:
        return
    nodes = [node for node in ray.nodes() if node["Alive"]]
    answers = ray.get([_exists_on(node["NodeID"], where.path) for node in nodes])
    exists_on = zip(nodes, answers, strict=True)
    without = [node["NodeManagerAddress"] for node, exists in exists_on if not exists]
    if without:
        raise InvalidRequest(
            f"the {what} {where.path} is a local path that {', '.join(without)} cannot see; put it on "
            "storage that every node has (NFS, s3://, hdfs://, gs://), or use --engine pandas"
        )


def _exists_on(node_id: str, path: str) -> Any:
    def exists() -> bool:
        from pathlib import Path  # noqa: PLC0415 - runs on a worker

        return Path(path).exists()

    here = NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)
    return ray.remote(exists).options(num_cpus=0, scheduling_strategy=here).remote()
