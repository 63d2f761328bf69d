"""Deleting ended jobs of ours on one cluster, so that it does not remember more and more of them.

Never before the result is on our own disk: the store is asked for each whether its end and its log are kept.
The newest ones stay, for whoever looks into Ray's own dashboard. Others' jobs are never touched. A delete
that fails does no harm: a later sweep finds the job again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from itertools import islice

from ray_multicluster_scheduler.asyncio_tools import together
from ray_multicluster_scheduler.core.lifecycle.attempt_request import ORIGIN
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.errors import ClusterError
from ray_multicluster_scheduler.ports import Executor

log = logging.getLogger(__name__)

#: Asked of the store in one go, and deleted at the same time.
BATCH = 100
AT_ONCE = 4
#: Ids that we have made: nobody else can have chosen one after the cluster was restarted.
_MADE_HERE = re.compile(r"sub_[0-9a-f]{32}(--r[0-9]+)?")


class Forgetter:
    """What ended on one cluster, oldest first, by remote id."""

    def __init__(self, context: EngineContext, cluster: str, executor: Executor) -> None:
        self._context = context
        self._cluster = cluster
        self._executor = executor
        self._ended: dict[str, None] = {}

    @property
    def is_due(self) -> bool:
        """Tell whether there are more than shall stay."""
        return len(self._ended) > self._context.settings.ended_jobs_on_cluster

    def ended(self, remote_id: str) -> None:
        """Take note of the end of a job whose result was just written."""
        self._ended[remote_id] = None

    def found(self, remote_ids: Iterable[str]) -> None:
        """Take note of ended jobs that the cluster has listed, oldest first: earlier leaders left them."""
        self._ended = {**dict.fromkeys(remote_ids), **self._ended}

    async def step(self) -> None:
        """Delete some of those that are too many."""
        excess = len(self._ended) - self._context.settings.ended_jobs_on_cluster
        oldest = list(islice(self._ended, max(0, min(excess, BATCH))))
        if not oldest:
            return
        kept = await self._context.offload(self._context.store.kept_ends, oldest)
        for remote_id in oldest:
            del self._ended[remote_id]
        queue = iter([remote_id for remote_id in oldest if remote_id in kept])
        await together(self._delete_all(queue) for _ in range(AT_ONCE))

    async def _delete_all(self, queue: Iterable[str]) -> None:
        for remote_id in queue:
            try:
                if _MADE_HERE.fullmatch(remote_id) or await self._is_ours(remote_id):
                    await self._executor.delete(remote_id)
            except ClusterError as error:
                log.debug("%s on %r not deleted: %s", remote_id, self._cluster, error)

    async def _is_ours(self, remote_id: str) -> bool:
        sighting = await self._executor.get(remote_id)
        return sighting.metadata.get(ORIGIN) == self._context.store.store_id
