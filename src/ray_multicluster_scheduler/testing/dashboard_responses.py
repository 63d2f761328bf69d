"""The JSON and the text that Ray's dashboard would send about a fake cluster."""

from __future__ import annotations

from typing import Any

from ray_multicluster_scheduler.model.execution import AttemptStatus
from ray_multicluster_scheduler.model.resources import GIB, Resources
from ray_multicluster_scheduler.ray_api.parse import camel_case
from ray_multicluster_scheduler.testing.fake_cluster import SUPERVISOR_DIED, FakeCluster, FakeJob


def job_details(job: FakeJob) -> dict[str, Any]:
    """Return one job with all the keys that Ray sends, in its order."""
    submission, lie = job.submission, {}
    if job.misreports:
        job.misreports -= 1
        lie = {"status": AttemptStatus.FAILED.value, "message": "asked for", "error_type": SUPERVISOR_DIED}
    return {
        "type": "SUBMISSION",
        "job_id": None,
        "submission_id": submission.submission_id,
        "driver_info": None,
        "status": job.status.value,
        "entrypoint": submission.entrypoint,
        "message": _message(job),
        "error_type": job.error_type,
        "start_time": int(job.submitted_at * 1000),
        "end_time": None if job.ended_at is None else int(job.ended_at * 1000),
        "metadata": submission.metadata,
        "runtime_env": submission.runtime_env,
        "driver_agent_http_address": None if job.node_id is None else "http://127.0.0.1:52365",
        "driver_node_id": job.node_id,
        "driver_exit_code": job.exit_code,
        **lie,
    }


def _message(job: FakeJob) -> str:
    if job.status is AttemptStatus.RUNNING:
        return "Job is currently running."
    if job.status is not AttemptStatus.PENDING:
        return job.message
    message = "Job has not started yet."
    if job.submission.demand:
        message += (
            " It may be waiting for resources (CPUs, GPUs, memory, custom resources) to become available."
        )
    if job.submission.runtime_env:
        message += " It may be waiting for the runtime environment to be set up."
    return message


def nodes(cluster: FakeCluster) -> dict[str, Any]:
    """Return the one node, which is the head."""
    node = {
        "node_id": cluster.node_id,
        "node_ip": "127.0.0.1",
        "is_head_node": True,
        "state": "ALIVE" if cluster.raylet_alive else "DEAD",
        "state_message": None if cluster.raylet_alive else "Unexpected termination: health check failed",
        "node_name": "127.0.0.1",
        "resources_total": _with_markers(cluster.total) if cluster.raylet_alive else {},
        "labels": {"ray.io/node-id": cluster.node_id},
    }
    return listing([node])


def listing(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the data of a list of Ray's state API."""
    counts = dict.fromkeys(("total", "num_after_truncation", "num_filtered"), len(rows))
    return {"result": {**counts, "result": rows, "partial_failure_warning": "", "warnings": None}}


def _with_markers(total: Resources) -> dict[str, float]:
    """Add the resources that Ray itself puts on every head."""
    return {**total, "node:__internal_head__": 1.0, "node:127.0.0.1": 1.0}


def status_json(cluster: FakeCluster, *, autoscaler_v2: bool) -> dict[str, Any]:
    """Return the data of `/api/cluster_status`, with keys rewritten as the dashboard does."""
    if autoscaler_v2:
        return {"autoscalingStatus": None, "autoscalingError": None, "clusterStatus": None}
    total = _with_markers(cluster.total) if cluster.raylet_alive else {}
    used = cluster.used()
    report = {
        "usage": {camel_case(name): [used.get(name, 0.0), amount] for name, amount in total.items()},
        "resourceDemand": [[dict(job.submission.demand), 1] for job in cluster.waiting()],
        "pgDemand": [],
        "requestDemand": [],
        "nodeTypes": [[total, 1]] if total else [],
    }
    return {
        "autoscalingStatus": None,
        "autoscalingError": None,
        "clusterStatus": {"loadMetricsReport": report},
    }


def status_text(cluster: FakeCluster) -> dict[str, str]:
    """Return the data of `/api/cluster_status?format=1`."""
    total = cluster.total if cluster.raylet_alive else {}
    used = cluster.used()
    usage = [f" {_amount(n, used[n])}/{_amount(n, amount)} {n}" for n, amount in sorted(total.items())]
    demand = [f" {dict(job.submission.demand)}: 1+ pending tasks/actors" for job in cluster.waiting()]
    line = "-" * 63
    lines = [
        "======== Autoscaler status: 2026-01-01 00:00:00.000000 ========",
        *["Node status", line, "Active:", f" 1 node_{cluster.node_id}", "Pending:", " (no pending nodes)"],
        *["Recent failures:", " (no failures)", "", "Resources", line, "Total Usage:", *usage, ""],
        *["From request_resources:", " (none)", "Pending Demands:", *(demand or [" (no resource demands)"])],
    ]
    return {"clusterStatus": "\n".join(lines)}


def _amount(name: str, amount: float) -> str:
    if name not in {"memory", "object_store_memory"}:
        return str(float(amount))
    for unit, size in (("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10)):
        if amount >= size:
            return f"{amount / size:.2f}{unit}"
    return f"{int(amount)}B"
