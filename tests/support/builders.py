"""Records for tests with everything filled in, so that a test names only what it is about."""

from typing import Any

from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec, Health, Node
from ray_multicluster_scheduler.model.decision import ClusterView, QueuedJob
from ray_multicluster_scheduler.model.job import Job, JobSpec
from ray_multicluster_scheduler.model.resources import GIB, Resources

#: A fixed "now" for code that takes the time as an argument.
NOW = 1_700_000_000.0
FOUR_CPUS: Resources = {"CPU": 4.0}
ONE_CPU: Resources = {"CPU": 1.0}


def a_cluster(name: str = "a", **changes: Any) -> ClusterSpec:
    """Return the configuration of a cluster on a loopback address."""
    fields: dict[str, Any] = {
        "name": name,
        "head_address": "127.0.0.1:10001",
        "dashboard": "http://127.0.0.1:8265",
        "max_running_jobs": 50,
    }
    return ClusterSpec(**{**fields, **changes})


def a_head(memory: float | None = 8 * GIB, **changes: Any) -> Node:
    """Return the head of a cluster with so many bytes of memory; None: it offers none."""
    resources = {"CPU": 4.0} if memory is None else {"CPU": 4.0, "memory": memory}
    fields = {"node_id": "n1", "address": "127.0.0.1", "alive": True, "is_head": True}
    return Node(**{**fields, "resources": resources, **changes})


def a_snapshot(name: str = "a", total: Resources | None = FOUR_CPUS, **changes: Any) -> ClusterSnapshot:
    """Return what is seen of a healthy, idle cluster: four CPUs by default, None for unknown."""
    fields: dict[str, Any] = {
        "name": name,
        "health": Health.HEALTHY,
        "score": 1.0,
        "total": total,
        "used": {},
        "pending": (),
        "nodes": (),
        "ray_version": "2.60.0",
        "python_version": "3.12.3",
        "session_name": "session_1",
        "latency_s": 0.01,
        "observed_at": NOW,
    }
    return ClusterSnapshot(**{**fields, **changes})


def a_view(
    name: str = "a",
    total: Resources | None = FOUR_CPUS,
    *,
    spec: dict[str, Any] | None = None,
    seen: dict[str, Any] | None = None,
    **changes: Any,
) -> ClusterView:
    """Return a cluster as the planner sees it; `spec` and `seen` change its configuration and snapshot."""
    return ClusterView(
        spec=a_cluster(name, **(spec or {})),
        snapshot=a_snapshot(name, **{"total": total, **(seen or {})}),
        **changes,
    )


def a_queued(submission_id: str = "job-1", claim: Resources = ONE_CPU, **changes: Any) -> QueuedJob:
    """Return a waiting job: one CPU, accepted just now."""
    fields: dict[str, Any] = {
        "submission_id": submission_id,
        "seq": 1,
        "user": "ann",
        "priority": 0,
        "waiting_since": NOW,
        "claim": claim,
    }
    return QueuedJob(**{**fields, **changes})


def a_spec(**changes: Any) -> JobSpec:
    """Return a request for a job."""
    return JobSpec(**{"entrypoint": "python -c 'print(1)'", "user": "ann", **changes})


def a_job(submission_id: str = "job-1", **changes: Any) -> Job:
    """Return a job that was just accepted."""
    fields: dict[str, Any] = {
        "seq": 1,
        "submission_id": submission_id,
        "spec": a_spec(),
        "accepted_at": NOW,
        "changed_at": NOW,
    }
    return Job(**{**fields, **changes})
