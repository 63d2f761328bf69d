"""Checks a pipeline (files, columns, environment, address), then runs its plan, once or several times.

Starting Ray and installing packages takes minutes, so a misspelt column should be reported before that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyarrow import dataset

from ray_multicluster_scheduler.config.installed import check_ray
from ray_multicluster_scheduler.environment.compose import normalise
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.packages.runtime_env import local_path, reader
from raymc_pipeline import PACKAGES
from raymc_pipeline.files import Location, find_input, find_output
from raymc_pipeline.pandas_engine import run_on_pandas
from raymc_pipeline.plan import Plan, check_names
from raymc_pipeline.report import Report, RunReport

_ADDRESS = re.compile(r"(?:ray://)?(?P<host>\[[^\]]+\]|[^\s:/@\[\]]+):(?P<port>\d{1,5})")
_LARGEST_PORT = 65535


def check_address(address: str | None) -> None:
    """Refuse an invalid address: Ray would try to connect for a minute."""
    if address is None or address == "auto":
        return
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match["port"]) <= _LARGEST_PORT:
        raise InvalidRequest(
            f"--ray-address {address!r} must be host:port (6379 by default), ray://host:port (10001 by "
            "default) or auto; the address of a dashboard is none of these"
        )


def check_environment(option: str, env: Mapping[str, Any] | None) -> None:
    """Refuse an environment that Ray would refuse; files that it names are read."""
    here = Path.cwd()
    normal = normalise(env, where=option, read=reader(here))
    for location in (normal.get("working_dir"), *normal.get("py_modules", ())):
        if location is not None and "://" not in location and not local_path(here, location).exists():
            raise InvalidRequest(f"{option}: {location!r} does not exist on this machine")


def check_here(plan: Plan, *, one_file: bool) -> None:
    """Refuse inputs, columns and outputs that are wrong on this machine. pandas writes `one_file`."""
    source = find_input(plan.source)
    check_names(plan, _column_names(source))
    if plan.output is not None:
        target = find_output(plan.output)
        if target.local:
            check_writable("--output", Path(target.path), is_file=one_file)


def check_writable(option: str, path: Path, *, is_file: bool) -> None:
    """Refuse a path that cannot be written. Missing parents are created for a directory, not for a file."""
    if is_file and path.is_dir():
        raise InvalidRequest(f"{option}: {path} is a directory; write the name of a file")
    above = path.parent if is_file or not path.exists() else path
    while not is_file and not above.exists():
        above = above.parent
    if not above.is_dir():
        raise InvalidRequest(f"{option}: there is no directory {above}")
    if not os.access(path if path.exists() else above, os.W_OK):
        raise InvalidRequest(f"{option}: {path} cannot be written: permission denied")


def _column_names(source: Location) -> list[str]:
    """Read the schema of an input and return the names of its columns."""
    try:
        return list(
            dataset.dataset(source.path, filesystem=source.filesystem, format=source.format).schema.names
        )
    except (pa.ArrowException, OSError) as problem:
        words = (str(problem) or type(problem).__name__).splitlines()[0]
        raise InvalidRequest(f"{source.written} cannot be read: {words}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class RayTarget:
    """The cluster and the environment of the Ray engine."""

    address: str | None = None
    runtime_env_json: str | None = None
    namespace: str | None = None


def run_pipeline(plan: Plan, *, on_ray: RayTarget | None, repeats: int = 1) -> Report:
    """Execute a plan, with pandas if `on_ray` is None; every repetition starts from the input."""
    engine = "pandas" if on_ray is None else "ray"
    runs = tuple(run_on_pandas(plan) if on_ray is None else _on_ray(plan, on_ray) for _ in range(repeats))
    return Report(engine=engine, source=plan.source, output=plan.output, runs=runs)


def _on_ray(plan: Plan, target: RayTarget) -> RunReport:
    check_ray("pipelines with --engine ray", extra="pipeline")
    import ray  # noqa: PLC0415 - takes seconds, and the pandas engine does without
    from ray.exceptions import RayTaskError  # noqa: PLC0415

    from ray_multicluster_scheduler.client.init_ray import (  # noqa: PLC0415
        check_packages,
        connect,
        first_task,
        parse_environment,
    )
    from raymc_pipeline.ray_engine import run_on_ray  # noqa: PLC0415

    env = parse_environment(target.runtime_env_json)
    # Ray Data needs a driver inside of the cluster; over Ray Client a task is the driver.
    outside = (target.address or "").startswith("ray://")
    # The progress of that task is in its log. For a driver inside, Ray itself reports what its workers log.
    if outside:
        env = {**env, "py_modules": [*env.get("py_modules", ()), *PACKAGES]}
    connect(target.address, env, target.namespace, worker_logs=outside)
    try:
        environment_s = first_task()
        check_packages(env)
        if not outside:
            return run_on_ray(plan, environment_s=environment_s)
        driver_task = ray.remote(run_on_ray).options(num_cpus=0).remote(plan, environment_s=environment_s)
        return cast(RunReport, ray.get(driver_task))
    except RayTaskError as problem:
        raise problem.cause from None
    finally:
        ray.shutdown()  # each run connects again, which shows the effect of a cached environment
