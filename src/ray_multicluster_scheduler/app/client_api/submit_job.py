"""`from ray_multicluster_scheduler.app.client_api.submit_job import submit_job`."""

from ray_multicluster_scheduler.app.client_api.unified_scheduler import initialize_scheduler
from ray_multicluster_scheduler.client.job_functions import (
    get_job_info,
    get_job_status,
    stop_job,
    submit_job,
)
from ray_multicluster_scheduler.client.scope import graceful_shutdown_on_keyboard_interrupt
from ray_multicluster_scheduler.client.wait_functions import wait_for_all_jobs

__all__ = [
    "get_job_info",
    "get_job_status",
    "graceful_shutdown_on_keyboard_interrupt",
    "initialize_scheduler",
    "stop_job",
    "submit_job",
    "wait_for_all_jobs",
]
