"""Why a queued job waits, for clients that ask every second: found out once in a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.service.local import LocalService
from ray_multicluster_scheduler.service.views import Explanation, JobView

#: An explanation looks at the whole queue.
GOOD_FOR_S = 5.0
MOST_KEPT = 1000


class Whys:
    """The last answers, by job."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._told: dict[tuple[str, float], tuple[float, str]] = {}

    def why(self, service: LocalService, job: JobView) -> str:
        """Return in one or two sentences why a queued job waits, and where it stands."""
        key = (job.submission_id, job.changed_at)
        kept = self._told.get(key)
        if kept is not None and kept[0] > self._now():
            return kept[1]
        with self._lock:  # one look at the queue at a time, however many clients ask
            kept = self._told.get(key)
            if kept is None or kept[0] <= self._now():
                kept = self._now() + GOOD_FOR_S, self._look(service, job)
                if len(self._told) >= MOST_KEPT:
                    self._told.clear()
                self._told[key] = kept
        return kept[1]

    def _look(self, service: LocalService, job: JobView) -> str:
        try:
            return _in_words(service.explain(job.submission_id))
        except SchedulerError:  # it has left the queue this moment
            return job.message


def _in_words(told: Explanation) -> str:
    place = f"Number {told.position} in the queue: " if told.position is not None else ""
    return f"{place}{told.why}."
