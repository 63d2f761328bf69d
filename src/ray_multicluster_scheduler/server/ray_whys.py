"""Why a queued job waits, for clients that ask every second: found out once in a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.service.local_service import LocalService
from ray_multicluster_scheduler.service.views import Explanation, JobView

#: An explanation looks at the whole queue.
GOOD_FOR_S = 5.0
#: Who finds others asking gets the last known reason after this time.
PATIENCE_S = 1.0
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
        told = self._fresh(key)
        # One look at the queue at a time, however many clients ask; and none of them waits for long.
        if told is None and self._lock.acquire(timeout=PATIENCE_S):
            try:
                told = self._fresh(key) or self._look(service, job)
                if len(self._told) >= MOST_KEPT:
                    self._told.clear()
                self._told[key] = self._now() + GOOD_FOR_S, told
            finally:
                self._lock.release()
        return told or job.message

    def _fresh(self, key: tuple[str, float]) -> str | None:
        until, told = self._told.get(key, (0.0, None))
        return told if until > self._now() else None

    def _look(self, service: LocalService, job: JobView) -> str:
        try:
            return _in_words(service.explain(job.submission_id))
        except SchedulerError:  # it has left the queue this moment
            return job.message


def _in_words(told: Explanation) -> str:
    place = f"Number {told.position} in the queue: " if told.position is not None else ""
    return f"{place}{told.why}."
