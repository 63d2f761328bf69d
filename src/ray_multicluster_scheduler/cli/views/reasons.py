"""Why a job waits, in one line, for a person who waits for it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.model.decision import Cause
from ray_multicluster_scheduler.model.states import JobState

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.current import Handle
    from ray_multicluster_scheduler.service.views import Explanation, JobView


#: A reason is looked up when a job has waited this long, and then again as often: it costs a pass.
LOOK_EVERY_S = 2.0


class WaitingReason:
    """Looks up from time to time why a job is still queued."""

    def __init__(self, scheduler: Handle) -> None:
        self._scheduler = scheduler
        self._clock = SystemClock()
        self._looked_at = self._clock.monotonic()
        self._said = ""

    def of(self, job: JobView) -> str:
        """Return the reason; empty for a job that starts or runs, or has only just begun to wait."""
        if job.state is not JobState.QUEUED:
            is_told = job.state not in {JobState.RUNNING, JobState.SUBMITTED} or job.setting_up
            return job.message if is_told else ""
        now = self._clock.monotonic()
        if now - self._looked_at >= LOOK_EVERY_S:
            self._said = why_it_waits(self._scheduler.service.explain(job.submission_id))
            self._looked_at = now
        return self._said

    def of_all(self, jobs: Collection[JobView]) -> str:
        """Return why the first of them waits, while none of them is on its way."""
        open_jobs = [job for job in jobs if not job.final]
        if not open_jobs or any(job.state is not JobState.QUEUED for job in open_jobs):
            return ""
        return self.of(open_jobs[0])


def upper_first(sentence: str) -> str:
    """Begin a sentence with a capital letter; the rest stays as it is."""
    return sentence[:1].upper() + sentence[1:]


def why_it_waits(explained: Explanation) -> str:
    """Put what `explain` says of a queued job into one line."""
    decision = explained.decision
    if decision is None:
        return explained.why
    if decision.cluster is not None:
        return f"{decision.cluster} has room and takes it next"
    told = {name: each for name, each in decision.refusals.items() if each.cause is not Cause.EXCLUDED}
    only = "its only cluster " if len(told) == 1 < len(decision.refusals) else ""
    return "; ".join(f"{only}{name}: {each.sentence}" for name, each in (told or decision.refusals).items())
