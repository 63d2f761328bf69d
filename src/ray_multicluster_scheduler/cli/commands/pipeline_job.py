"""`raymc pipeline --cluster`: the same pipeline as a scheduled job, which carries this package."""

from __future__ import annotations

import json
import shlex
import uuid
from pathlib import Path

from ray_multicluster_scheduler.cli.console import say
from ray_multicluster_scheduler.cli.follow_jobs import follow, stopping_on_interrupt, tell_end
from ray_multicluster_scheduler.cli.options.request import json_object
from ray_multicluster_scheduler.cli.session import check_cluster, opened
from ray_multicluster_scheduler.client.packing import handed_over
from ray_multicluster_scheduler.config.user import this_user
from ray_multicluster_scheduler.errors import PipelineFailed
from ray_multicluster_scheduler.pipeline.on_cluster import REPORT_LINE
from ray_multicluster_scheduler.pipeline.pipeline_plan import Plan
from ray_multicluster_scheduler.pipeline.report import Report
from ray_multicluster_scheduler.service.request import JobRequest


def run_as_job(
    config: Path | None, plan: Plan, cluster: str, environment: str | None, *, repeats: int
) -> Report:
    """Submit a plan, follow its log and return its report; `cluster` is a name, or auto for the best one."""
    env = json_object("--ray-runtime-env-json", environment) or {}
    words = ["python", "-m", "ray_multicluster_scheduler.pipeline.on_cluster", plan.to_json(), str(repeats)]
    submission_id = f"pipeline_{uuid.uuid4().hex[:12]}"
    request = JobRequest(
        entrypoint=shlex.join(words),
        user=this_user(),
        submission_id=submission_id,
        runtime_env=env,
        preferred_cluster=None if cluster == "auto" else cluster,
    )
    with opened(config) as scheduler, stopping_on_interrupt(scheduler, [submission_id]):
        if request.preferred_cluster is not None:
            check_cluster(scheduler, request.preferred_cluster)
        scheduler.service.submit([handed_over(request, scheduler)])
        scheduler.ensure_scheduled(at_once=True)
        say(f"{submission_id} accepted. Ctrl-C stops it.")
        tell_end(follow(scheduler, submission_id))
        return _report(scheduler.service.log(submission_id) or "")


def _report(log: str) -> Report:
    lines = [line for line in log.splitlines() if line.startswith(REPORT_LINE)]
    try:
        return Report.from_json(lines[-1].removeprefix(REPORT_LINE))
    except (IndexError, json.JSONDecodeError):
        raise PipelineFailed("the job succeeded, but its log holds no report") from None
