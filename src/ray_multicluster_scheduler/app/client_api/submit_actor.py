"""`from ray_multicluster_scheduler.app.client_api.submit_actor import submit_actor`."""

from ray_multicluster_scheduler.client.tasks import kill_actor, list_actors, submit_actor

__all__ = ["kill_actor", "list_actors", "submit_actor"]
