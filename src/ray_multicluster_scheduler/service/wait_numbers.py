"""Why jobs wait, in numbers and job by job, for everybody who asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ray_multicluster_scheduler.model.decision import Wait
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.service.kept_answer import KeptAnswer

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.explain import Explainer, Snapshots

#: How long an answer is reused, so that many pages cost one pass over the queue.
GOOD_FOR_S = 2.0
#: A pass over thousands of kinds of jobs takes seconds: looks at lists must not slow the leader down.
TIMES = 10.0
#: What the leader has published is read this often at most.
READ_EVERY_S = 0.5


class WaitNumbers:
    """The numbers that the leader publishes; where nobody leads, the same worked out from the store."""

    def __init__(
        self,
        explainer: Explainer,
        clock: Clock,
        published: Callable[[], tuple[Wait, ...] | None],
        *,
        look: Callable[[], Snapshots | None],
    ) -> None:
        self._explainer = explainer
        self._look = look
        self._published = KeptAnswer(published, clock, good_for_s=READ_EVERY_S)
        self._of_store = KeptAnswer(
            lambda: explainer.waits(snapshots=look()), clock, good_for_s=GOOD_FOR_S, times=TIMES
        )

    def __call__(self) -> tuple[Wait, ...]:
        """Return every reason with waiting jobs; those that ask at the same time share one computation."""
        found = self._published()
        return self._of_store() if found is None else found

    def of(self, jobs: Sequence[Job]) -> tuple[Wait, ...]:
        """Return the reasons why these jobs wait, which need no others, and perhaps those of others."""
        found = self._published() or ()
        known = {line for wait in found for line in wait.lines}
        unknown = [job for job in jobs if self._explainer.line_of(job) not in known]
        if unknown:  # they came after the leader has last published
            found = (*found, *self._explainer.waits_of(unknown, snapshots=self._look()))
        return found
