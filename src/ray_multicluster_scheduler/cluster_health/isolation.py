"""What is done for one cluster fails alone: no bug that its answers wake may end the engine.

Expected trouble is handled where it happens. What arrives here is a bug, and it is loud: logged with its
traceback once for each kind, shown as the cluster's problem, and tried again after pauses that grow. What
concerns everybody (the store, the lease) is not held back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from ray_multicluster_scheduler.errors import StoreError

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class Isolation:
    """Runs the steps of one loop of one cluster; `told` hears what is wrong with it, None when it works."""

    def __init__(self, cluster: str, what: str, told: Callable[[str | None], None]) -> None:
        self._cluster = cluster
        self._what = what
        self._told = told
        self._failures = 0
        self._logged: set[str] = set()

    async def run(self, step: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Do one step. A bug in it is reported here and goes no further."""
        try:
            await step()
        except StoreError:
            raise
        except Exception as bug:  # noqa: BLE001 - the one supervisor of a cluster's loops
            self.failed(bug)
        else:
            self.worked()

    def failed(self, bug: Exception) -> None:
        """Report a bug, and take note of it for the next pause."""
        self._failures += 1
        self._report(bug)

    def worked(self) -> None:
        """Take note that a step did what it should."""
        if self._failures:
            self._failures = 0
            self._told(None)

    def pause_s(self, planned: float) -> float:
        """Return how long to wait before the next step: longer after each that failed."""
        if not self._failures:
            return planned
        return max(planned, min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures - 1, 10)))

    def _report(self, bug: Exception) -> None:
        kind = type(bug).__name__
        if kind not in self._logged:
            self._logged.add(kind)
            log.error(
                "a bug: %s failed; it goes on with pauses, and other clusters are not concerned",
                self._what,
                extra={"cluster": self._cluster},
                exc_info=bug,
            )
        self._told(f"{self._what} fails with {kind}, a bug of this scheduler: please report it with the log")
