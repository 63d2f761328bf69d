"""Runs a plan on the selected engine, once or several times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from ray_multicluster_scheduler.config.installed import check_ray
from raymc_pipeline import PACKAGES
from raymc_pipeline.pandas_engine import run_on_pandas
from raymc_pipeline.plan import Plan
from raymc_pipeline.report import Report, RunReport


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
