"""Settings of the older package of this name. They are not read, and the user is told so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_PREFIX = "SCHEDULER_"
_NOT_NEEDED = "it is not needed here"
#: What to write instead of each of its variables, without their prefix.
INSTEAD = {
    "EXECUTION_MODE": "write `max_running_jobs: 1` in a cluster's entry for one job at a time",
    "SUBMISSION_WAIT_TIME": f"{_NOT_NEEDED}: what each job claims is counted from the moment it is placed",
    "RESOURCE_THRESHOLD": "write `max_resources` in a cluster's entry to use a part of it only",
    "RESOURCE_CHECK_INTERVAL": "write `probe_interval_s` under `scheduler:`",
    "JOB_COMPLETION_TIMEOUT": "give `timeout_s` to submit_job",
    "TASK_COMPLETION_TIMEOUT": "give `timeout` to get_task_result or ray.get",
    "ACTOR_READY_TIMEOUT": "give `timeout` to submit_actor",
    "DEFAULT_TASK_TIMEOUT": "give `timeout` to get_task_result or ray.get",
    "CONNECTION_TIMEOUT": "write `request_timeout_s` under `scheduler:`",
    "JOB_CLIENT_TIMEOUT": "write `request_timeout_s` under `scheduler:`",
    "JOB_CLIENT_CACHE_TIMEOUT": _NOT_NEEDED,
    "JOB_CLIENT_CONNECTION_TEST_TIMEOUT": "write `probe_timeout_s` under `scheduler:`",
    "JOB_STATUS_CHECK_INTERVAL": "write `poll_interval_s` under `scheduler:`",
    "HEALTH_CHECK_INTERVAL": "write `probe_interval_s` under `scheduler:`",
    "CACHE_TIMEOUT": _NOT_NEEDED,
    "EMPTY_QUEUE_SLEEP": _NOT_NEEDED,
    "QUEUE_CONDITION_WAIT_TIMEOUT": _NOT_NEEDED,
    "ACTOR_NOTIFICATION_WAIT": _NOT_NEEDED,
    "JOB_POLL_CHECK_INTERVAL": "give `check_interval` to wait_for_all_jobs",
    "PROMETHEUS_QUERY_TIMEOUT": f"{_NOT_NEEDED}: no Prometheus is asked",
    "TASK_QUEUE_MAX_SIZE": f"{_NOT_NEEDED}: the queue is on disk",
    "TASK_QUEUE_DEFAULT_MAX_SIZE": f"{_NOT_NEEDED}: the queue is on disk",
    "CIRCUIT_BREAKER_FAILURE_THRESHOLD": _NOT_NEEDED,
    "CIRCUIT_BREAKER_RECOVERY_TIMEOUT": _NOT_NEEDED,
    "RETRY_SLEEP": "write `retry_delay_s` under `scheduler:`",
    "BACKOFF_TIME": "write `retry_delay_s` under `scheduler:`",
    "WORKER_THREAD_JOIN_TIMEOUT": _NOT_NEEDED,
    "ERROR_LOOP_SLEEP": _NOT_NEEDED,
    "REPEATED_ERROR_SLEEP": _NOT_NEEDED,
    "CLUSTER_WEIGHT_DEFAULT": "write `weight` in a cluster's entry",
}
#: Also read by the older package, below the user's home.
SETTINGS_FILE = Path(".ray_scheduler") / "settings.yaml"


def ignored_settings(environ: Mapping[str, str], *, home: Path) -> list[str]:
    """Return a sentence for each setting of the older package that is set and does nothing here."""
    sentences = [
        f"the variable {_PREFIX}{name} is not read: {instead}"
        for name, instead in INSTEAD.items()
        if _PREFIX + name in environ
    ]
    if (home / SETTINGS_FILE).is_file():
        sentences.append(
            f"{home / SETTINGS_FILE} is not read: settings are in clusters.yaml, under `scheduler:` and in "
            "each cluster's entry (docs/how-to/from-the-older-package.md says which)"
        )
    return sentences
