"""Asking one cluster to stop jobs: again if Ray forgot it, but not at every look."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from ray_multicluster_scheduler.core.lifecycle.stopping import may_ask_again
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.errors import ClusterError
from ray_multicluster_scheduler.ports import Executor
from ray_multicluster_scheduler.text.visible import visible

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Asked:
    """When Ray first took the stop, if it did, and when it was last asked (monotonic)."""

    taken_at: float | None
    last_at: float


class Stops:
    """The stops of one cluster, by remote id."""

    def __init__(self, context: EngineContext, executor: Executor) -> None:
        self._context = context
        self._executor = executor
        self._asked: dict[str, _Asked] = {}

    async def ask(self, remote_id: str) -> bool:
        """Ask Ray to stop a job; True when it is stopping it because of this call."""
        now, known = self._context.clock.monotonic(), self._asked.get(remote_id)
        if known is not None and not may_ask_again(known.last_at, now=now):
            return False
        taken_at = known.taken_at if known else None
        self._asked[remote_id] = _Asked(taken_at, now)
        self._context.crash_point("stop:before-post")
        try:
            stopping = await self._executor.stop(remote_id)
        except ClusterError as error:
            log.warning("stop of %s not delivered: %s", remote_id, visible(str(error)))
            return False
        self._asked[remote_id] = _Asked(now if taken_at is None else taken_at, now)
        return stopping

    def stopping_s(self, remote_id: str) -> float | None:
        """Return how long ago Ray took the first stop of a job; None: it has not."""
        known = self._asked.get(remote_id)
        if known is None or known.taken_at is None:
            return None
        return self._context.clock.monotonic() - known.taken_at

    def keep_only(self, remote_ids: Collection[str]) -> None:
        """Forget all other jobs: they have ended."""
        self._asked = {name: asked for name, asked in self._asked.items() if name in remote_ids}
