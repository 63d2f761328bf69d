"""Refuse jobs that no cluster could ever run, before they are stored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.core.live_jobs import LiveJobs
from ray_multicluster_scheduler.core.placement.capacity import Room, open_room
from ray_multicluster_scheduler.core.placement.checks import never_fits
from ray_multicluster_scheduler.core.placement.inputs import (
    Fits,
    World,
    cluster_views,
    env_key,
    may_run_on,
    unworkable,
)
from ray_multicluster_scheduler.environment.ray_needs import ray_needs
from ray_multicluster_scheduler.errors import InvalidRuntimeEnv, NeverFits
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec, Health
from ray_multicluster_scheduler.model.decision import ClusterView
from ray_multicluster_scheduler.model.job import JobSpec
from ray_multicluster_scheduler.model.resources import Resources
from ray_multicluster_scheduler.ports import Clock

if TYPE_CHECKING:
    from ray_multicluster_scheduler.store import Store

#: Poll interval for the first snapshots after the start: writing a snapshot sends no notification.
FIRST_LOOK_S = 0.05
#: How many kinds of jobs are cached, each with a cluster that can run it.
MOST_KINDS = 1000

#: How long a cached cluster is trusted without a new check: less than the interval between two snapshots.
SURE_FOR_S = 0.5

#: What a job claims, what has to be set up for it, and where it may run.
_Kind = tuple[frozenset[tuple[str, float]], str, str | None, tuple[str, ...]]


class Admission:
    """Checks each kind of job against all clusters once, then only against the one that could run it."""

    def __init__(
        self,
        config: Config,
        store: Store,
        clock: Clock,
        fits: Fits,
        look: Callable[[], Mapping[str, ClusterSnapshot] | None],
    ) -> None:
        """`look` probes the clusters where nobody leads; it returns None where somebody does."""
        self._config = config
        self._look = look
        self._store = store
        self._clock = clock
        self._fits = fits
        #: For each kind: a cluster that could run it, and until when that is trusted.
        self._could: dict[_Kind, tuple[ClusterSpec, float]] = {}

    def check(
        self, specs: Sequence[JobSpec], *, snapshots: Mapping[str, ClusterSnapshot] | None = None
    ) -> None:
        """Raise `NeverFits` or `InvalidRuntimeEnv` for a job that no cluster could ever take.

        Waits a moment for clusters that were not looked at yet, unless the caller has `snapshots`.
        """
        if snapshots is not None:
            views = self._views_of(self._config.clusters, snapshots)
            _refuse_too_large(specs, views)
            _refuse_unworkable(specs, views)
            return
        kinds = {_kind(spec): spec for spec in specs}  # all jobs of an array are one kind
        doubtful = {kind: spec for kind, spec in kinds.items() if not self._still_can(kind, spec)}
        if not doubtful:
            return
        views = self._ask_all(list(doubtful.values()))
        for kind, spec in doubtful.items():
            could = next((view.spec for view in views if self._could_take(spec, view)), None)
            if could is not None:
                if len(self._could) >= MOST_KINDS:
                    self._could.clear()
                self._could[kind] = could, self._clock.monotonic() + SURE_FOR_S

    def _still_can(self, kind: _Kind, spec: JobSpec) -> bool:
        cluster, until = self._could.get(kind, (None, 0.0))
        environment = kind[1]  # an environment may have failed just now, so it is always checked
        if cluster is None or (not environment and self._clock.monotonic() < until):
            return cluster is not None
        if not self._could_take(spec, self._views([cluster])[0]):
            return False
        self._could[kind] = cluster, self._clock.monotonic() + SURE_FOR_S
        return True

    def _could_take(self, spec: JobSpec, view: ClusterView) -> bool:
        """Tell whether a cluster is known to be large enough for a job, and can set up its environment."""
        if not may_run_on(spec, view.spec) or any(n == view.name for n, _ in self._fits.unfit(spec)):
            return False
        return _known_to_fit(spec.claim, [open_room(view)]) and not unworkable(spec, [view])

    def _ask_all(self, specs: Sequence[JobSpec]) -> tuple[ClusterView, ...]:
        """Check the jobs against all clusters, and return the view of the clusters that passed.

        Waits a moment for cluster sizes and versions that are not known; where nobody leads, looks itself.
        """
        ends_at = self._clock.monotonic() + self._config.settings.probe_timeout_s
        unsure: Collection[JobSpec] = specs
        asks_for_ray = any(ray_needs(spec.runtime_env) for spec in specs)
        mark, seen = 0, None
        while True:
            clusters = self._config.clusters
            views = self._views(clusters) if seen is None else self._views_of(clusters, seen)
            _refuse_too_large(unsure, views)
            unsure = [
                spec
                for spec in unsure
                if not _known_to_fit(spec.claim, [open_room(view) for view in _left_by(spec, views)])
            ]
            left = ends_at - self._clock.monotonic()
            unseen = asks_for_ray and any(view.snapshot.health is Health.UNKNOWN for view in views)
            if left <= 0 or seen is not None or not (unsure or unseen):
                _refuse_unworkable(specs, views)
                return views
            seen = self._look()
            if seen is None:
                mark = self._store.changes.wait(mark, timeout_s=min(left, FIRST_LOOK_S))

    def _views(self, clusters: Sequence[ClusterSpec]) -> tuple[ClusterView, ...]:
        names = None if clusters is self._config.clusters else [spec.name for spec in clusters]
        return self._views_of(clusters, self._store.clusters.load_snapshots(names))

    def _views_of(
        self, clusters: Sequence[ClusterSpec], seen: Mapping[str, ClusterSnapshot]
    ) -> tuple[ClusterView, ...]:
        return cluster_views(World(specs=clusters, snapshots=seen, live=LiveJobs(), now=self._clock.now()))


def _kind(spec: JobSpec) -> _Kind:
    return frozenset(spec.claim.items()), env_key(spec), spec.only_cluster, spec.only_tags


def _left_by(spec: JobSpec, views: Sequence[ClusterView]) -> Sequence[ClusterView]:
    """Return the clusters that a job may run on."""
    if spec.only_cluster is None and not spec.only_tags:
        return views
    return [view for view in views if may_run_on(spec, view.spec)]


def _none_of(spec: JobSpec) -> str:
    restricted = spec.only_cluster is not None or spec.only_tags
    return "no cluster that it may run on" if restricted else "no cluster"


def _known_to_fit(claim: Resources, rooms: Iterable[Room]) -> bool:
    return any(not room.unknown(claim) and not room.beyond(claim) for room in rooms)


def _refuse_too_large(specs: Iterable[JobSpec], views: Sequence[ClusterView]) -> None:
    for spec in specs:
        if reason := never_fits(spec.claim, _left_by(spec, views)):
            raise NeverFits(f"{_none_of(spec)} could ever hold this job: it {reason}")


def _refuse_unworkable(specs: Iterable[JobSpec], views: Sequence[ClusterView]) -> None:
    """Refuse an environment that no cluster can set up: its Ray is too old, or the setup failed lately."""
    for spec in specs:
        if reasons := unworkable(spec, _left_by(spec, views)):
            raise InvalidRuntimeEnv(
                "no cluster can take this environment:\n"
                + "\n".join(f"cluster {name!r}: {why}" for name, why in reasons.items())
            )
