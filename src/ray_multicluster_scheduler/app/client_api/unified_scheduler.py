"""`from ray_multicluster_scheduler.app.client_api.unified_scheduler import get_unified_scheduler`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ray_multicluster_scheduler.client import current
from ray_multicluster_scheduler.client.current import AnyClient, initialize_scheduler_environment
from ray_multicluster_scheduler.client.job_functions import submit_job
from ray_multicluster_scheduler.client.tasks import submit_actor, submit_task

__all__ = [
    "UnifiedScheduler",
    "get_unified_scheduler",
    "initialize_scheduler",
    "initialize_scheduler_environment",
    "submit_actor",
    "submit_job",
    "submit_task",
]


class UnifiedScheduler:
    """The scheduler of this process as older programs hold it. All objects of this class are the same one.

    What is not here is asked of the handle that `initialize_scheduler_environment` returns.
    """

    submit_actor = staticmethod(submit_actor)
    submit_job = staticmethod(submit_job)
    submit_task = staticmethod(submit_task)

    def initialize_environment(self, config_file_path: str | Path | None = None) -> AnyClient:
        """Read the configuration and start scheduling; see `initialize_scheduler_environment`."""
        return initialize_scheduler_environment(config_file_path)

    @property
    def task_lifecycle_manager(self) -> AnyClient:
        """The handle with `.start()` and `.stop()`."""
        return current.get_unified_scheduler()

    def cleanup(self) -> None:
        """Stop scheduling in this process; jobs go on."""
        self.task_lifecycle_manager.stop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task_lifecycle_manager, name)


def get_unified_scheduler() -> UnifiedScheduler:
    """Return the scheduler of this process, initialised from the default places when needed.

    Raises `ConfigNotFound`, a RuntimeError that lists where it looked, when there is no configuration.
    """
    current.get_unified_scheduler()
    return UnifiedScheduler()


def initialize_scheduler(task_lifecycle_manager: AnyClient) -> None:
    """Start the handle that `initialize_scheduler_environment` returned, unless it runs."""
    task_lifecycle_manager.start()
