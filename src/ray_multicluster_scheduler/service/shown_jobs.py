"""Views of jobs that change, for a caller who follows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ray_multicluster_scheduler.errors import JobNotFound
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.service.caller import Caller
from ray_multicluster_scheduler.service.views import JobView


class ShownJobs:
    """The views of the jobs that a caller waits for. A view is rebuilt only when its job has changed."""

    def __init__(self, caller: Caller, show: Callable[[Job], JobView]) -> None:
        self._caller = caller
        self._show = show
        self._jobs: Mapping[str, Job] = {}
        self._views: Mapping[str, JobView] = {}

    def of(self, jobs: Mapping[str, Job]) -> Mapping[str, JobView]:
        """Return the views of all jobs; raises `JobNotFound` for one that this caller may not see."""
        moved = {name: job for name, job in jobs.items() if self._jobs.get(name) is not job}
        for name, job in moved.items():
            if not self._caller.sees(job.spec.user):
                raise JobNotFound(name)
        self._views = {**self._views, **{name: self._show(job) for name, job in moved.items()}}
        self._jobs = jobs
        return self._views
