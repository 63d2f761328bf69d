"""`from ray_multicluster_scheduler.app.client_api.unified_scheduler import get_unified_scheduler`."""

from ray_multicluster_scheduler.client.current import get_unified_scheduler, initialize_scheduler_environment

__all__ = ["get_unified_scheduler", "initialize_scheduler_environment"]
