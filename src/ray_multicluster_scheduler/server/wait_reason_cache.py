"""Why a queued job waits, cached for clients that ask every second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.service.local_service import LocalService
from ray_multicluster_scheduler.service.views import Explanation, JobView

#: How long a reason is reused: computing one reads the whole queue.
GOOD_FOR_S = 5.0
#: How long a request waits for another one's computation before it answers with the last known reason.
PATIENCE_S = 1.0
MOST_KEPT = 1000


class WaitReasonCache:
    """The last reasons, by job."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._reasons: dict[tuple[str, float], tuple[float, str]] = {}

    def reason(self, service: LocalService, job: JobView) -> str:
        """Return in one or two sentences why a queued job waits, and where it stands."""
        key = (job.submission_id, job.changed_at)
        reason = self._fresh(key)
        # One computation at a time, however many clients ask, and no client waits for long.
        if reason is None and self._lock.acquire(timeout=PATIENCE_S):
            try:
                reason = self._fresh(key) or self._look(service, job)
                if len(self._reasons) >= MOST_KEPT:
                    self._reasons.clear()
                self._reasons[key] = self._now() + GOOD_FOR_S, reason
            finally:
                self._lock.release()
        return reason or job.message

    def _fresh(self, key: tuple[str, float]) -> str | None:
        until, reason = self._reasons.get(key, (0.0, None))
        return reason if until > self._now() else None

    def _look(self, service: LocalService, job: JobView) -> str:
        try:
            return _in_words(service.explain(job.submission_id))
        except SchedulerError:  # the job has just left the queue
            return job.message


def _in_words(explanation: Explanation) -> str:
    place = f"Number {explanation.position} in the queue: " if explanation.position is not None else ""
    return f"{place}{explanation.why}."
