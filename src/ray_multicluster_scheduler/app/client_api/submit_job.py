"""`from ray_multicluster_scheduler.app.client_api.submit_job import submit_job`."""

from ray_multicluster_scheduler.app.client_api.unified_scheduler import initialize_scheduler
from ray_multicluster_scheduler.client.current import working_scheduler
from ray_multicluster_scheduler.client.job_functions import (
    get_job_info,
    get_job_status,
    stop_job,
    submit_job,
)
from ray_multicluster_scheduler.client.scope import graceful_shutdown_on_keyboard_interrupt
from ray_multicluster_scheduler.client.waiting import wait_for_all_jobs
from ray_multicluster_scheduler.errors import JobNotFound
from ray_multicluster_scheduler.service.query import one_job

__all__ = [
    "get_job_info",
    "get_job_status",
    "graceful_shutdown_on_keyboard_interrupt",
    "initialize_scheduler",
    "stop_job",
    "submit_job",
    "update_submitted_job_id",
    "wait_for_all_jobs",
]


def update_submitted_job_id(old_job_id: str, new_actual_submission_id: str) -> bool:
    """Tell whether both ids mean the same job. Nothing is changed: the id of a job stays the same here."""
    service = working_scheduler().service
    try:
        former, present = one_job(service, old_job_id), one_job(service, new_actual_submission_id)
    except JobNotFound:
        return False
    return former.submission_id == present.submission_id
