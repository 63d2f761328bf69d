"""Gauges of the queue, the clusters and the leader, read at each scrape and at no other time."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ray_multicluster_scheduler import __version__
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.service.views import ClusterView

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
