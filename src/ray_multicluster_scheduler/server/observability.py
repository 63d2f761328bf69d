"""Metrics of a running server, and traces where they are configured."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from ray_multicluster_scheduler.model.past_move import PastMove
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.server.metrics import Metrics
from ray_multicluster_scheduler.server.traces import open_traces


@asynccontextmanager
async def watching(scheduler: Scheduler, metrics: Metrics) -> AsyncIterator[None]:
    """Measure and trace until the server ends; enter it on the loop of the server."""
    traces = await asyncio.to_thread(open_traces, scheduler, os.environ)

    def tell(moves: Sequence[PastMove]) -> None:
        metrics.jobs.count(moves)
        if traces is not None:
            traces.export(moves)

    follower = await asyncio.to_thread(scheduler.follow_moves, tell)
    metrics.start()
    try:
        yield
    finally:
        await metrics.stop()
        await asyncio.to_thread(follower.close)
        if traces is not None:
            await asyncio.to_thread(traces.close)
