"""Run jobs, tasks and actors on many independent Ray clusters as if they were one."""

from ray_multicluster_scheduler.client.current import get_unified_scheduler, initialize_scheduler_environment
from ray_multicluster_scheduler.client.jobs import (
    drain,
    explain,
    get_job_info,
    get_job_status,
    list_jobs,
    plan_job,
    stop_job,
    submit_job,
    submit_jobs,
    undrain,
    wait_for_all_jobs,
)
from ray_multicluster_scheduler.client.scope import graceful_shutdown_on_keyboard_interrupt
from ray_multicluster_scheduler.client.tail import tail_job_logs

__version__ = "0.1.0"

__all__ = [
    "drain",
    "explain",
    "get_job_info",
    "get_job_status",
    "get_unified_scheduler",
    "graceful_shutdown_on_keyboard_interrupt",
    "initialize_scheduler_environment",
    "list_jobs",
    "plan_job",
    "stop_job",
    "submit_job",
    "submit_jobs",
    "tail_job_logs",
    "undrain",
    "wait_for_all_jobs",
]
