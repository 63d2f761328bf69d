"""`from ray_multicluster_scheduler.app.client_api.submit_task import submit_task`."""

from ray_multicluster_scheduler.app.client_api.unified_scheduler import initialize_scheduler
from ray_multicluster_scheduler.client.tasks import (
    cancel_task,
    get_task_result,
    get_task_status,
    submit_task,
)

__all__ = ["cancel_task", "get_task_result", "get_task_status", "initialize_scheduler", "submit_task"]
