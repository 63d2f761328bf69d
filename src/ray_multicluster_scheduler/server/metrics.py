"""`/metrics` for Prometheus: the counters of one server, and the route that shows them."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import Annotated, cast

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from prometheus_client import CollectorRegistry, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder

from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.server.http_metrics import HttpMetrics
from ray_multicluster_scheduler.server.job_metrics import JobMetrics
from ray_multicluster_scheduler.server.request_caller import allowed
from ray_multicluster_scheduler.server.world_metrics import WorldMetrics
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.local_service import LocalService

log = logging.getLogger(__name__)

_STORE_S = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
_LAG_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
#: A loop is asked this often how late it is.
LAG_EVERY_S = 0.5

router = APIRouter()


class Metrics:
    """All that one server counts. Each application has its own registry, so that two never mix."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.registry = CollectorRegistry()
        self.http = HttpMetrics(self.registry)
        self.jobs = JobMetrics(self.registry)
        self._store = Histogram(
            "raymc_store_seconds",
            "How long transactions take: read, write (with the wait for other writers), and commit, which "
            "is the part of a write that waits for the disk.",
            ["operation"],
            buckets=_STORE_S,
            registry=self.registry,
        )
        self._lag = Histogram(
            "raymc_loop_lag_seconds",
            "How late the event loop of this server comes to what is due.",
            buckets=_LAG_S,
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)
        self.registry.register(WorldMetrics(scheduler))
        self._http_lag: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to measure; call it on the loop of the server."""
        children = {name: self._store.labels(name) for name in ("read", "write", "commit")}
        self._scheduler.tell_store_times(lambda kind, seconds: children[kind].observe(seconds))
        self._http_lag = asyncio.create_task(self._watch_lag())

    async def stop(self) -> None:
        """Measure no more; what was counted can still be read."""
        if self._http_lag is not None:
            self._http_lag.cancel()
            with suppress(asyncio.CancelledError):
                await self._http_lag

    def expose(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in the form that the scraper wants, and what form that is."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    async def _watch_lag(self) -> None:
        while True:
            due = time.monotonic() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            self._lag.observe(max(0.0, time.monotonic() - due))


def add_metrics(app: FastAPI, scheduler: Scheduler) -> Metrics:
    """Let this application answer `/metrics`; its door counts, and `watching` is for its lifespan."""
    metrics = Metrics(scheduler)
    app.state.metrics = metrics
    app.include_router(router)
    return metrics


@router.get("/metrics", include_in_schema=False)
def show_metrics(
    request: Request,
    service: Annotated[LocalService, Depends(allowed(Role.READ))],  # noqa: ARG001 - asked for the role
) -> Response:
    """Show all metrics. Any role may: there are numbers and cluster names in it, no jobs and no users."""
    metrics = cast(Metrics, request.app.state.metrics)
    body, content_type = metrics.expose(request.headers.get("accept", ""))
    return Response(body, headers={"content-type": content_type})
