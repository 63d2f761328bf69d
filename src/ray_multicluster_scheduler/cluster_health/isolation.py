"""Isolates the loops of one cluster: a bug that its answers trigger must not stop the engine.

Expected errors are handled where they occur, so an exception that arrives here is a bug. It is logged with
its traceback once per type and shown as the cluster's problem, and the step is retried after growing pauses.
Errors of the store and the lease affect all clusters and are raised.
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
    """Runs the steps of one loop of one cluster; `report` is called with its problem, or None if it works."""

    def __init__(self, cluster: str, what: str, report: Callable[[str | None], None]) -> None:
        self._cluster = cluster
        self._what = what
        self._report = report
        self._failures = 0
        self._logged: set[str] = set()

    async def run(self, step: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run one step; a bug in it is reported and not raised."""
        try:
            await step()
        except StoreError:
            raise
        except Exception as bug:  # noqa: BLE001 - the one supervisor of a cluster's loops
            self.failed(bug)
        else:
            self.worked()

    def failed(self, bug: Exception) -> None:
        """Report a bug, and count it for the next pause."""
        self._failures += 1
        self._report_bug(bug)

    def worked(self) -> None:
        """Note that a step succeeded."""
        if self._failures:
            self._failures = 0
            self._report(None)

    def pause_s(self, planned: float) -> float:
        """Return the pause before the next step, which grows with each failure in a row."""
        if not self._failures:
            return planned
        return max(planned, min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures - 1, 10)))

    def _report_bug(self, bug: Exception) -> None:
        kind = type(bug).__name__
        if kind not in self._logged:
            self._logged.add(kind)
            log.error(
                "a bug: %s failed; it is retried after a pause, and other clusters are not affected",
                self._what,
                extra={"cluster": self._cluster},
                exc_info=bug,
            )
        self._report(
            f"{self._what} fails with {kind}, a bug of this scheduler: please report it with the log"
        )
