"""Why jobs wait, in numbers, for everybody who asks."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ray_multicluster_scheduler.core.placement.wait_reasons import Wait
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.service.explain import Explainer, Snapshots

#: How long an answer is reused, so that many pages cost one pass over the queue.
GOOD_FOR_S = 2.0
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
        self._clock = clock
        self._of_engine = of_engine
        self._look = look
        self._lock = threading.Lock()
        self._waits: tuple[Wait, ...] = ()
        self._good_until = float("-inf")

    def __call__(self) -> tuple[Wait, ...]:
        """Return every reason with waiting jobs; those that ask at the same time share one computation."""
        with self._lock:
            if self._clock.monotonic() >= self._good_until:
                found = self._of_engine()
                self._waits = self._explainer.waits(snapshots=self._look()) if found is None else found
                self._good_until = self._clock.monotonic() + GOOD_FOR_S
            return self._waits
