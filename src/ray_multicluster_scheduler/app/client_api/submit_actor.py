"""`from ray_multicluster_scheduler.app.client_api.submit_actor import submit_actor`."""

from ray_multicluster_scheduler.app.client_api.submit_task import get_current_cluster_context
from ray_multicluster_scheduler.app.client_api.unified_scheduler import initialize_scheduler
from ray_multicluster_scheduler.client.tasks import (
    get_actor_result,
    get_actor_status,
    kill_actor,
    list_actors,
    submit_actor,
    submit_actor_async,
)

__all__ = [
    "get_actor_result",
    "get_actor_status",
    "get_current_cluster_context",
    "initialize_scheduler",
    "kill_actor",
    "list_actors",
    "submit_actor",
    "submit_actor_async",
]
