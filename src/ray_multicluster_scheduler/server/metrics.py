"""`/metrics` for Prometheus: the counters of one server, and the route that shows them."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Annotated, cast

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.types import Scope

from ray_multicluster_scheduler import __version__
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.job import PastMove
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.server.authentication import allowed
from ray_multicluster_scheduler.server.traces import open_traces
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.service import LocalService
from ray_multicluster_scheduler.service.views import ClusterView

# What is counted of requests: those that are refused at the door included.


_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
#: Neither ids nor paths that somebody made up become labels.
NO_ROUTE = "none"


class HttpMetrics:
    """What is counted of requests, streams and websockets."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "raymc_http_requests",
            "Answered requests by the template of their route; none: refused before a route was found.",
            ["method", "route", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "raymc_http_request_seconds",
            "How long requests take until their answer begins.",
            ["method", "route"],
            buckets=_SECONDS,
            registry=registry,
        )
        now = Gauge(
            "raymc_http_open",
            "What is open now: requests, streams (answers without a known end) and websockets.",
            ["kind"],
            registry=registry,
        )
        self.open = {kind: now.labels(kind) for kind in ("request", "stream", "websocket")}

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request whose answer begins."""
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = getattr(scope.get("route"), "path", NO_ROUTE)
        self.requests.labels(method, route, str(status)).inc()
        self.seconds.labels(method, route).observe(seconds)


# Counters of job events. They are read from the store, whichever process schedules the jobs.


#: From a few milliseconds, which a free cluster takes, to a day in the queue.
_STEPS_S = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)
_RUNS_S = (1, 10, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 7 * 24 * 3600)

#: Which step a job has made when it has left the first of these states for the second.
STEPS = {
    (JobState.QUEUED, JobState.PLACED): "place",
    (JobState.PLACED, JobState.SUBMITTED): "send",
    (JobState.SUBMITTED, JobState.RUNNING): "start",
}
#: From its acceptance until its first attempt runs.
WHOLE_WAY = "accept_to_run"


class JobMetrics:
    """Counters and histograms that are fed with moves."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._accepted = Counter("raymc_jobs_accepted", "Jobs that were accepted.", registry=registry)
        self._ended = Counter(
            "raymc_jobs_ended", "Jobs that have ended, by how.", ["state"], registry=registry
        )
        self._placements = Counter(
            "raymc_placements", "Attempts that were given to a cluster.", ["cluster"], registry=registry
        )
        self._attempts = Counter(
            "raymc_attempts_ended",
            "Attempts that have ended on a cluster, by how.",
            ["cluster", "outcome"],
            registry=registry,
        )
        self._steps = Histogram(
            "raymc_dispatch_seconds",
            "How long jobs take for each step: place (in the queue), send (to the cluster), start (of the "
            "driver), and accept_to_run (all of it, first attempts only).",
            ["step"],
            buckets=_STEPS_S,
            registry=registry,
        )
        self._runs = Histogram(
            "raymc_run_seconds",
            "How long the last attempts of jobs ran, by how they ended.",
            ["state"],
            buckets=_RUNS_S,
            registry=registry,
        )

    def count(self, moves: Sequence[PastMove]) -> None:
        """Take in what has happened."""
        for move in moves:
            self._count(move)

    def _count(self, move: PastMove) -> None:
        if move.old is None:
            self._accepted.inc()
            return
        begins = move.new is JobState.RUNNING and move.old in _STARTS
        # A program has begun and ended when its cluster says so, however late that was noticed.
        at = move.started_at if begins and move.started_at is not None else move.at
        lasted_s = 0.0 if move.since is None else max(0.0, at - move.since)
        if move.new is JobState.PLACED:
            self._placements.labels(move.cluster).inc()
        if step := STEPS.get((move.old, move.new)):
            self._steps.labels(step).observe(lasted_s)
        if begins and move.attempt == 1:
            self._steps.labels(WHOLE_WAY).observe(max(0.0, at - move.accepted_at))
        if move.outcome is not None:
            self._attempts.labels(move.cluster, move.outcome).inc()
        if move.new in FINAL:
            self._ended.labels(move.new.value).inc()
            if move.started_at is not None and move.ended_at is not None:
                self._runs.labels(move.new.value).observe(max(0.0, move.ended_at - move.started_at))


_STARTS = frozenset({JobState.PLACED, JobState.SUBMITTED})


# Gauges of the queue, the clusters and the leader, read at each scrape and at no other time.


_OPEN = frozenset(JobState) - FINAL

#: Name, help text and value of each gauge of a cluster.
OF_EACH_CLUSTER: tuple[tuple[str, str, Callable[[ClusterView], float | None]], ...] = (
    ("up", "1 if the cluster is healthy, else 0.", lambda it: it.health is Health.HEALTHY),
    ("score", "0 (avoid) to 1 (answers always and fast), from recent probes.", lambda it: it.score),
    ("drained", "1 if the cluster gets no new jobs because somebody said so, else 0.", lambda it: it.drained),
    (
        "throttled",
        "1 if the cluster gets fewer jobs because jobs die there quickly, else 0.",
        lambda it: it.throttle is not None,
    ),
    ("live_jobs", "Our jobs that hold a place on the cluster.", lambda it: it.live_jobs),
    (
        "live_jobs_limit",
        "How many of our jobs the cluster may have at once: as configured, or what its head has memory for.",
        lambda it: it.max_running_jobs,
    ),
    ("latency_seconds", "How long the cluster took to answer lately.", lambda it: it.latency_s),
)


class WorldMetrics(Collector):
    """Gauges that are made when they are asked for."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Say nothing beforehand: asking the store is for scrapes."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Look at everything once."""
        yield from self._process()
        yield from self._leader()
        yield from self._queue()
        yield from _clusters(self._scheduler.service.clusters(), now=self._scheduler.clock.now())

    def _process(self) -> Iterator[GaugeMetricFamily]:
        yield _gauge(
            "raymc_build_info",
            "Always 1; which version this is.",
            ("version", "python"),
            {(__version__, platform.python_version()): 1},
        )
        yield _gauge("raymc_threads", "Threads of this process.", (), {(): threading.active_count()})

    def _leader(self) -> Iterator[GaugeMetricFamily]:
        leader = self._scheduler.service.leader()
        leads = leader is not None and self._scheduler.is_leader(leader.holder)
        yield _gauge("raymc_leader", "1 if this server schedules, else 0.", (), {(): leads})
        yield _gauge(
            "raymc_leader_known",
            "1 if any process schedules on this store, else 0.",
            (),
            {(): leader is not None},
        )

    def _queue(self) -> Iterator[GaugeMetricFamily]:
        counts = self._scheduler.service.counts(_OPEN)
        yield _gauge(
            "raymc_jobs",
            "Jobs that have not ended, by state.",
            ("state",),
            {(state.value,): counts.get(state, 0) for state in sorted(_OPEN)},
        )
        now, waits = self._scheduler.clock.now(), self._scheduler.service.wait_reasons()
        yield _gauge(
            "raymc_queue_jobs",
            "Jobs in the queue by the reason why they wait.",
            ("reason",),
            {(wait.reason,): wait.jobs for wait in waits},
        )
        yield _gauge(
            "raymc_queue_oldest_seconds",
            "How long ago the oldest job that waits for this reason was accepted.",
            ("reason",),
            {(wait.reason,): max(0.0, now - wait.oldest) for wait in waits},
        )


def _clusters(clusters: Iterable[ClusterView], *, now: float) -> Iterator[GaugeMetricFamily]:
    known: Mapping[tuple[str, ...], ClusterView] = {(cluster.name,): cluster for cluster in clusters}
    for name, says, value in OF_EACH_CLUSTER:
        values = {named: value(cluster) for named, cluster in known.items()}
        yield _gauge(f"raymc_cluster_{name}", says, ("cluster",), values)
    seen_at = {named: cluster.observed_at for named, cluster in known.items()}
    yield _gauge(
        "raymc_cluster_snapshot_age_seconds",
        "How old the values of the cluster are.",
        ("cluster",),
        {named: None if at is None else max(0.0, now - at) for named, at in seen_at.items()},
    )
    yield _resources("capacity", "What the cluster has.", {n: c.total for (n,), c in known.items()})
    yield _resources(
        "used", "What is used of the cluster, by whomever.", {n: c.used for (n,), c in known.items()}
    )
    yield _resources(
        "claimed", "What our jobs on the cluster asked for.", {n: c.claimed for (n,), c in known.items()}
    )


def _resources(name: str, says: str, clusters: Mapping[str, Mapping[str, float] | None]) -> GaugeMetricFamily:
    return _gauge(
        f"raymc_cluster_resource_{name}",
        f"{says} Memory in bytes.",
        ("cluster", "resource"),
        {
            (cluster, resource): amount
            for cluster, amounts in clusters.items()
            for resource, amount in (amounts or {}).items()
        },
    )


def _gauge(
    name: str, says: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float | None]
) -> GaugeMetricFamily:
    """Make one family; what is unknown is left out, for zero would be wrong."""
    family = GaugeMetricFamily(name, says, labels=labels)
    for words, value in values.items():
        if value is not None:
            family.add_metric(words, float(value))
    return family


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


# Metrics of a running server, and traces where they are configured.


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
