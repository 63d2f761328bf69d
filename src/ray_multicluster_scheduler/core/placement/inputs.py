"""Builds the planner's inputs from the configuration, the snapshots and the live jobs.

The engine, `explain` and the dry run all use this module, so their inputs are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from ray_multicluster_scheduler.core.live_jobs import LiveJobs
from ray_multicluster_scheduler.core.placement.checks import is_allowed
from ray_multicluster_scheduler.core.rules import ONLY_DEFAULT
from ray_multicluster_scheduler.environment.compose import compose
from ray_multicluster_scheduler.environment.options import CLUSTER_VAR
from ray_multicluster_scheduler.environment.ray_needs import ray_needs, ray_objection
from ray_multicluster_scheduler.environment.setup_failure import setup_digest, still_failing
from ray_multicluster_scheduler.errors import InvalidRuntimeEnv
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec, DrainMark, RayNeeds
from ray_multicluster_scheduler.model.decision import ClusterView, QueuedJob
from ray_multicluster_scheduler.model.execution import ORDINARY, Capabilities
from ray_multicluster_scheduler.model.job import Job, JobSpec

#: Limit of cached setups.
MOST_SETUPS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The sources of the planner's view of the clusters."""

    specs: Sequence[ClusterSpec]
    snapshots: Mapping[str, ClusterSnapshot]
    live: LiveJobs
    #: Marks made by `drain` and `undrain`, by cluster: they override the configuration.
    drains: Mapping[str, DrainMark] = field(default_factory=dict)
    #: The present time: failed setups expire.
    now: float
    #: What each executor can do.
    executors: Mapping[str, Capabilities] = field(default_factory=lambda: ONLY_DEFAULT)


def cluster_views(world: World) -> tuple[ClusterView, ...]:
    """Return every configured cluster as the planner sees it."""
    return tuple(cluster_view(spec, world) for spec in world.specs)


class Fits:
    """Finds the clusters of a configuration on which an environment cannot be composed.

    The result depends on the packages to set up, and not on variables, so each pair of different setups is
    tried once, however many clusters and jobs have it.
    """

    def __init__(self, specs: Sequence[ClusterSpec]) -> None:
        self._specs = specs
        self._alike: dict[str, list[ClusterSpec]] = {}
        for spec in specs:
            self._alike.setdefault(setup_digest(spec.runtime_env), []).append(spec)
        self._unfit: dict[str, tuple[tuple[str, str], ...]] = {}

    @property
    def clusters(self) -> Sequence[ClusterSpec]:
        """The clusters of the configuration."""
        return self._specs

    def allowed(self, spec: JobSpec) -> Set[str]:
        """Return the clusters that a job's `only_cluster` and `only_tags` leave."""
        return {each.name for each in self._specs if may_run_on(spec, each)}

    @property
    def without_working_dir(self) -> Set[str]:
        """The clusters in which the relative path of a job without a working_dir starts nowhere."""
        return {spec.name for spec in self._specs if not spec.runtime_env.get("working_dir")}

    def unfit(self, spec: JobSpec) -> tuple[tuple[str, str], ...]:
        """Return the clusters on which a job's environment cannot be composed, with reasons."""
        key = env_key(spec)
        found = self._unfit.get(key)
        if found is None:
            refusing = [alike for alike in self._alike.values() if unfit_clusters(spec, alike[:1])]
            reasons = {name: why for alike in refusing for name, why in unfit_clusters(spec, alike)}
            found = tuple((each.name, reasons[each.name]) for each in self._specs if each.name in reasons)
            if len(self._unfit) >= MOST_SETUPS:
                self._unfit.clear()
            self._unfit[key] = found
        return found


class QueuedJobs:
    """Makes `QueuedJob`s of waiting jobs."""

    def __init__(
        self, specs: Sequence[ClusterSpec], executors: Mapping[str, Capabilities] = ONLY_DEFAULT
    ) -> None:
        self._fits = Fits(specs)
        self._executors = executors
        self._ray_needs: dict[str, RayNeeds] = {}

    def of(self, job: Job) -> QueuedJob:
        """Return one job as the planner sees it."""
        key = env_key(job.spec)
        if key not in self._ray_needs:
            if len(self._ray_needs) >= MOST_SETUPS:
                self._ray_needs.clear()
            self._ray_needs[key] = ray_needs(job.spec.runtime_env)
        return QueuedJob(
            submission_id=job.submission_id,
            seq=job.seq,
            user=job.spec.user,
            priority=job.spec.priority,
            waiting_since=job.accepted_at,
            claim=job.spec.claim,
            tags=job.spec.tags,
            preferred_cluster=job.spec.preferred_cluster,
            only_cluster=job.spec.only_cluster,
            only_tags=job.spec.only_tags,
            avoid=job.avoid,
            unfit=self._fits.unfit(job.spec),
            env_key=key,
            ray_needs=self._ray_needs[key],
            executor=job.spec.executor,
            needs_driver_slot=self._executors.get(job.spec.executor, ORDINARY).needs_driver_slot,
            client_ray=job.spec.client_ray,
            client_python=job.spec.client_python,
        )


def may_run_on(spec: JobSpec, cluster: ClusterSpec) -> bool:
    """Tell whether a job's `only_cluster` and `only_tags` leave it a cluster."""
    return is_allowed(spec.only_cluster, spec.only_tags, cluster.name, cluster.tags) is None


def unfit_clusters(spec: JobSpec, specs: Sequence[ClusterSpec]) -> tuple[tuple[str, str], ...]:
    """Return the clusters on which this job's environment cannot be composed, with the reason for each."""
    unfit = []
    for cluster in specs:
        try:
            compose(cluster.runtime_env, spec.runtime_env, identity={CLUSTER_VAR: cluster.name}, overlay=True)
        except InvalidRuntimeEnv as error:
            unfit.append((cluster.name, str(error)))
    return tuple(unfit)


def unworkable(spec: JobSpec, views: Sequence[ClusterView]) -> dict[str, str] | None:
    """Say for every cluster why it cannot set up a job's environment; None if one can or might."""
    needs, key = ray_needs(spec.runtime_env), env_key(spec)
    if not needs and not any(view.ray_needs or view.failing for view in views):
        return None  # that no cluster can compose it was checked before
    reasons: dict[str, str] = {}
    for view in views:
        why = ray_objection(needs, view.ray_needs, view.snapshot.ray_version) or view.failing.get(key)
        unfit = ((view.spec.name, why),) if why is not None else unfit_clusters(spec, [view.spec])
        if not unfit:
            return None
        reasons.update(unfit)
    return reasons


def env_key(spec: JobSpec) -> str:
    """Return a key of the setup that a job needs; empty if there is nothing to set up."""
    return setup_digest(spec.runtime_env)


def drain_fields(spec: ClusterSpec, mark: DrainMark | None) -> dict[str, Any]:
    """Return what a `ClusterView` says of draining: a mark overrules the configuration."""
    if mark is None:
        return {"drained": spec.drained, "drain_reason": "set in the configuration"}
    return {
        "drained": mark.drained,
        "drain_reason": mark.reason,
        "drained_at": mark.at if mark.drained else None,
    }


def cluster_view(spec: ClusterSpec, world: World) -> ClusterView:
    """Return one cluster as the planner sees it."""
    snapshot = world.snapshots.get(spec.name, ClusterSnapshot(name=spec.name))
    here = world.live.on(spec.name)
    limit, starting = snapshot.start_limit, len(here.starting)
    slotless = {name for name, can in world.executors.items() if not can.needs_driver_slot}
    return ClusterView(
        spec=spec,
        snapshot=snapshot,
        **drain_fields(spec, world.drains.get(spec.name)),
        reserved=here.claims.total,
        unseen=here.unseen(snapshot.observed_at or 0.0),
        live_jobs=len(here.jobs),
        slotless_jobs=sum(job.spec.executor in slotless for job in here.jobs.values()) if slotless else 0,
        holdings=here.holdings,
        warm=frozenset(snapshot.warm),
        starting=starting,
        last_start_at=here.last_start_at,
        ray_needs=ray_needs(spec.runtime_env),
        failing=still_failing(spec, snapshot, now=world.now),
        allowance=None if limit is None else max(0, limit - starting),
    )
