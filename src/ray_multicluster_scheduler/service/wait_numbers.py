"""Why jobs wait, in numbers and job by job, for everybody who asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ray_multicluster_scheduler.core.placement.wait_reasons import Wait
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.service.explain import Explainer, Snapshots
from ray_multicluster_scheduler.service.kept_answer import KeptAnswer

#: How long an answer is reused, so that many pages cost one pass over the queue.
GOOD_FOR_S = 2.0
#: A pass over thousands of kinds of jobs takes seconds: looks at lists must not slow the leader down.
TIMES = 10.0
#: An engine that does not answer within this is busy: the store is asked instead.
ENGINE_TIMEOUT_S = 5.0


class WaitNumbers:
    """The numbers of the leader if it is in this process, else the same worked out from the store."""

    def __init__(
        self,
        explainer: Explainer,
        clock: Clock,
        *,
        of_engine: Callable[[], tuple[Wait, ...] | None],
        look: Callable[[], Snapshots | None],
    ) -> None:
        self._explainer = explainer
        self._look = look
        self._of_engine = KeptAnswer(of_engine, clock, good_for_s=GOOD_FOR_S, times=TIMES)
        self._of_store = KeptAnswer(
            lambda: explainer.waits(snapshots=look()), clock, good_for_s=GOOD_FOR_S, times=TIMES
        )

    def __call__(self) -> tuple[Wait, ...]:
        """Return every reason with waiting jobs; those that ask at the same time share one computation."""
        found = self._of_engine()
        return self._of_store() if found is None else found

    def of(self, jobs: Sequence[Job]) -> tuple[Wait, ...]:
        """Return the reasons why these jobs wait, which need no others, and perhaps those of others."""
        found = self._of_engine()
        return self._explainer.waits_of(jobs, snapshots=self._look()) if found is None else found
