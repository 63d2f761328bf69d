"""The scheduler as a program inside a job sees it, where no server was named: tasks and actors, and no queue.

It imports neither the engine nor the store, so a job needs nothing but what `ray[default]` brings.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.config.store_place import store_place
from ray_multicluster_scheduler.environment.env_vars import SUBMISSION_ID_VAR
from ray_multicluster_scheduler.errors import NoQueueHere, StoreError
from ray_multicluster_scheduler.packages.own_package import ROOT, others_on_path
from ray_multicluster_scheduler.version import VERSION

if TYPE_CHECKING:
    from ray_multicluster_scheduler.tasks.submitter import TaskSubmitter

log = logging.getLogger(__name__)


class JobProgram:
    """The handle of `initialize_scheduler_environment` inside a job; opens nothing before it is needed."""

    def __init__(self, config: Config, *, environ: Mapping[str, str]) -> None:
        self.config = config
        self._environ = environ
        self._lock = threading.Lock()
        self._tasks: TaskSubmitter | None = None
        self._stopped = False

    def anew(self) -> JobProgram:
        """Return one with the same configuration that has no connection yet."""
        return JobProgram(self.config, environ=self._environ)

    @property
    def directory(self) -> Path:
        """Where packages of this program are kept."""
        return store_place(self.config, self._environ).directory

    @property
    def tasks(self) -> TaskSubmitter:
        """Tasks and actors."""
        with self._lock:
            if self._stopped:
                raise StoreError("this scheduler was stopped; call initialize_scheduler_environment again")
            if self._tasks is None:
                from ray_multicluster_scheduler.tasks.submitter import TaskSubmitter  # noqa: PLC0415 - if ever

                self._tasks = TaskSubmitter.without_store(self.config, self._environ)
            return self._tasks

    @property
    def service(self) -> NoReturn:
        """Raise `NoQueueHere`."""
        raise self.no_queue()

    def no_queue(self) -> NoQueueHere:
        """Return the error for a call that needs a queue of jobs."""
        return NoQueueHere(self._environ[SUBMISSION_ID_VAR])

    @property
    def stopped(self) -> bool:
        """Tell whether `stop` was called."""
        return self._stopped

    def start(self) -> None:
        """Start nothing: the scheduler that has sent this job goes on elsewhere."""

    def ensure_scheduled(self, *, at_once: bool = False) -> None:
        """Do nothing: the scheduler that has sent this job goes on elsewhere."""

    def stop(self) -> None:
        """End the tasks and actors of this program."""
        with self._lock:
            self._stopped = True
            tasks, self._tasks = self._tasks, None
        if tasks is not None:
            tasks.close()

    def list_clusters(self) -> list[str]:
        """Return the names of the configured clusters."""
        return [spec.name for spec in self.config.clusters]

    def cluster_details(self) -> NoReturn:
        """Raise `NoQueueHere`: what is known of the clusters, the scheduler elsewhere knows."""
        raise self.no_queue()


def warn_of_other_packages(environ: Mapping[str, str]) -> None:
    """Say if another package of our name lies on the path of this job: its author may think it is used."""
    for place in others_on_path(environ):
        log.warning(
            "ray_multicluster_scheduler %s is used, from %s, and not the one in %s: "
            "remove that line from PYTHONPATH in the cluster's runtime_env",
            VERSION,
            ROOT,
            place,
        )
