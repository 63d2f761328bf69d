"""`from ray_multicluster_scheduler.app.client_api.submit_task import submit_task`."""

import os

from ray_multicluster_scheduler.app.client_api.unified_scheduler import initialize_scheduler
from ray_multicluster_scheduler.client.tasks import (
    cancel_task,
    get_task_result,
    get_task_status,
    submit_task,
)
from ray_multicluster_scheduler.environment.options import CLUSTER_VAR

__all__ = [
    "cancel_task",
    "get_current_cluster_context",
    "get_task_result",
    "get_task_status",
    "initialize_scheduler",
    "submit_task",
]


def get_current_cluster_context() -> str | None:
    """Return the name of the cluster that runs this program as a job; None for a program that is no job.

    Its tasks and actors start there, unless `preferred_cluster` says otherwise.
    """
    return os.environ.get(CLUSTER_VAR)
