"""The entrypoint of a pipeline that runs as a job: executes a plan on the job's own cluster.

    python -m raymc_pipeline.on_cluster PLAN_JSON REPEATS

Of this package's dependencies, the cluster needs only `ray[data]` and pandas.
"""

from __future__ import annotations

import sys

import ray

from ray_multicluster_scheduler.errors import SchedulerError
from raymc_pipeline import REPORT_LINE
from raymc_pipeline.plan import Plan
from raymc_pipeline.ray_engine import run_on_ray
from raymc_pipeline.report import Report, timed


def main(plan_json: str, repeats: int) -> None:
    """Run the plan and write the report as the last line of the log."""
    plan = Plan.from_json(plan_json)
    try:
        _, seconds = timed(ray.init)
        runs = tuple(run_on_ray(plan, environment_s=None if run else seconds) for run in range(repeats))
    except SchedulerError as problem:
        sys.exit(f"error: {problem}")
    report = Report(engine="ray", source=plan.source, output=plan.output, runs=runs)
    sys.stdout.write(f"{REPORT_LINE}{report.to_json(indent=None)}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
